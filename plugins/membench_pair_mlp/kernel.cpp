// Training of the pair MLP: exact gradients, and Adam.
//
// A context's neurons are rows of the tables added up, so that tables have neurons side by side. The logits
// want contexts side by side, and so the neurons of a block are kept in both orders. With biases, that of the
// answers is the row of the unembedding that reads one more neuron, which is always 1.
//
// w, n and A are the neurons, the tokens and the answers; wl is w padded, and hl with that neuron.
#include "kernel.hpp"

using namespace membench;

namespace {

enum Activation { RELU, GELU, NONE };

struct Shape {
    Index vocab, length, answers, neurons;
    std::int32_t activation, bias, residual, norm;
};

// out[k][i] = in[i][k], for eight rows of eight.
inline void transpose(const float* in, Index in_row, float* out, Index out_row) {
    Lanes even[4], odd[4];  // columns of pairs of rows
    for (int p = 0; p < 4; ++p) {
        const Lanes a = lanes(in + 2 * p * in_row), b = lanes(in + (2 * p + 1) * in_row);
        even[p] = MEMBENCH_SHUFFLE(a, b, 0, 8, 2, 10, 4, 12, 6, 14);
        odd[p] = MEMBENCH_SHUFFLE(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
    }
    for (int column = 0; column < 2; ++column) {
        const Lanes* pairs = column ? odd : even;
        for (int later = 0; later < 2; ++later) {  // columns 0, 1 and 4, 5, or those two later
            auto four = [&](Lanes a, Lanes b) {
                return later ? MEMBENCH_SHUFFLE(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
                             : MEMBENCH_SHUFFLE(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
            };
            const Lanes upper = four(pairs[0], pairs[1]), lower = four(pairs[2], pairs[3]);
            float* to = out + (column + 2 * later) * out_row;
            lanes(to) = MEMBENCH_SHUFFLE(upper, lower, 0, 1, 2, 3, 8, 9, 10, 11);
            lanes(to + 4 * out_row) = MEMBENCH_SHUFFLE(upper, lower, 4, 5, 6, 7, 12, 13, 14, 15);
        }
    }
}

class PairMLP {
  public:
    PairMLP(const Shape& shape, const Facts& facts, const Run& run)
        : s(shape),
          w(s.neurons),
          wl(padded(w)),
          read(w + (s.bias ? 1 : 0)),
          hl(padded(read)),
          stride(padded(s.answers)),
          row(std::max(run.block, facts.width) + LANES),
          readout(s.answers, read, row),
          by_contexts(row * hl),
          by_lanes(hl * row),
          to_neurons(row * hl),
          steepness(row * wl),
          scale(row),
          readings(stride * hl),
          to_readings(stride * hl) {}

    Index size() const { return s.length * s.vocab * wl + (s.bias ? wl : 0) + read * stride; }

    // The tables [S, n, wl], the biases of neurons [wl] if there are any, and the unembedding [w, padded A], with the
    // biases of answers below.
    void begin(const float* weights, float* gradient) {
        const Index all = s.length * s.vocab * wl;
        tables = weights, bias = weights + all, unembed = bias + (s.bias ? wl : 0);
        to_tables = gradient, to_bias = gradient + all, to_unembed = to_bias + (s.bias ? wl : 0);
        for (Index i = 0; i < read; ++i)
            for (Index k = 0; k < s.answers; ++k) readings[k * hl + i] = unembed[i * stride + k];
        to_readings.clear();
    }

    void exact(const Facts& facts, Score& score) {
        for (Index group = 0; group < facts.groups; ++group) block(facts.block(group, 1, s.answers, s.length), score);
    }

    void block(const Block& block, Score& score) {
        activate(block);
        const float* slopes = readout.to_logits(block, by_lanes, unembed, score);
        multiply(to_readings, hl, {slopes, row, 1}, by_contexts, hl, s.answers, block.width, hl, true);
        multiply(to_neurons, hl, {slopes, 1, row}, readings, hl, block.width, s.answers, hl);
        learn(block);
    }

    void finish() {
        for (Index i = 0; i < read; ++i)
            for (Index k = 0; k < s.answers; ++k) to_unembed[i * stride + k] += to_readings[k * hl + i];
    }

  private:
    Index place(const Block& block, Index context, Index at) const {
        return (at * s.vocab + block.tokens[context * s.length + at]) * wl;
    }

    void activate(const Block& block) {
        for (Index c = 0; c < block.width; ++c)
            for (Index i = 0; i < wl; i += LANES) {
                Lanes sum = s.bias ? lanes(bias + i) : Lanes{};
                for (Index at = 0; at < s.length; ++at) sum += lanes(tables + place(block, c, at) + i);
                open(sum, lanes(by_contexts + c * hl + i), lanes(steepness + c * wl + i));
            }
        if (s.norm)
            for (Index c = 0; c < block.width; ++c) normalise(by_contexts + c * hl, scale[c]);
        if (s.bias)
            for (Index c = 0; c < block.width; ++c) by_contexts[c * hl + w] = 1.0f;
        for (Index c = 0; c < block.width; c += LANES)
            for (Index i = 0; i < hl; i += LANES) transpose(by_contexts + c * hl + i, hl, by_lanes + i * row + c, row);
    }

    // What a neuron says, and how that changes with its input.
    void open(Lanes input, Lanes& value, Lanes& slope) const {
        if (s.activation == RELU) {
            value = larger(input, Lanes{});
            slope = where(input > 0.0f, every(1.0f));
        } else if (s.activation == GELU) {
            gelu(input, value, slope);
        } else {
            value = input;
            slope = every(1.0f);
        }
        if (s.residual) {
            value += input;
            slope += 1.0f;
        }
    }

    void normalise(float* neurons, float& scale) const {
        Lanes square{};
        for (Index i = 0; i < wl; i += LANES) square += lanes(neurons + i) * lanes(neurons + i);
        scale = 1.0f / std::sqrt(total(square) / float(w) + 1e-6f);
        for (Index i = 0; i < wl; i += LANES) lanes(neurons + i) *= scale;
    }

    // A change along what is read is undone by the norm.
    void normalise_back(const float* neurons, float scale, float* slopes) const {
        Lanes along{};
        for (Index i = 0; i < wl; i += LANES) along += lanes(slopes + i) * lanes(neurons + i);
        const float mean = total(along) / float(w);
        for (Index i = 0; i < wl; i += LANES)
            lanes(slopes + i) = scale * (lanes(slopes + i) - mean * lanes(neurons + i));
    }

    void learn(const Block& block) {
        for (Index c = 0; c < block.width; ++c) {
            float* slopes = to_neurons + c * hl;
            if (s.bias) by_contexts[c * hl + w] = slopes[w] = 0.0f;  // it is no neuron, and has no weights
            if (s.norm) normalise_back(by_contexts + c * hl, scale[c], slopes);
            for (Index i = 0; i < wl; i += LANES) {
                const Lanes active = lanes(slopes + i) * lanes(steepness + c * wl + i);
                for (Index at = 0; at < s.length; ++at) lanes(to_tables + place(block, c, at) + i) += active;
                if (s.bias) lanes(to_bias + i) += active;
            }
        }
    }

    const Shape s;
    const Index w, wl, read, hl;  // read: neurons that the unembedding reads
    const Index stride, row;      // stride: padded A; row: distance between rows of a block
    Readout readout;
    const float *tables = {}, *bias = {}, *unembed = {};
    float *to_tables = {}, *to_bias = {}, *to_unembed = {};
    Buffer by_contexts, by_lanes;  // [row, hl] and [hl, row]: what neurons say
    Buffer to_neurons;             // [row, hl]
    Buffer steepness, scale;       // [row, wl]: of the activation; [row]: of the norm
    Buffer readings, to_readings;  // [A, hl]: the unembedding in the other order
};

}  // namespace

MEMBENCH_KERNEL(PairMLP, Shape)
