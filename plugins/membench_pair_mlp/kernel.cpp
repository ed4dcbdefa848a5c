// Training of the pair MLP: exact gradients, and Adam.
//
// A context's neurons are rows of the tables added up, so that tables have neurons side by side. The logits
// want contexts side by side, and so the neurons of a block are kept in both orders.
//
// w, n and A are the neurons, the tokens and the answers; wl is w padded.
#include "kernel.hpp"

using namespace membench;

namespace {

struct Shape {
    Index vocab, length, answers, neurons;
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
          stride(padded(s.answers)),
          row(std::max(run.block, facts.width) + LANES),
          readout(s.answers, w, row),
          by_contexts(row * wl),
          by_lanes(wl * row),
          to_neurons(row * wl),
          readings(stride * wl),
          to_readings(stride * wl) {}

    Index size() const { return s.length * s.vocab * wl + w * stride; }

    // The tables [S, n, wl], and after them the unembedding [w, padded A].
    void begin(const float* weights, float* gradient) {
        tables = weights, unembed = weights + s.length * s.vocab * wl;
        to_tables = gradient, to_unembed = gradient + s.length * s.vocab * wl;
        for (Index i = 0; i < w; ++i)
            for (Index k = 0; k < s.answers; ++k) readings[k * wl + i] = unembed[i * stride + k];
        to_readings.clear();
    }

    void exact(const Facts& facts, Score& score) {
        for (Index group = 0; group < facts.groups; ++group) block(facts.block(group, 1, s.answers, s.length), score);
    }

    void block(const Block& block, Score& score) {
        activate(block);
        const float* slopes = readout.to_logits(block, by_lanes, unembed, score);
        multiply(to_readings, wl, {slopes, row, 1}, by_contexts, wl, s.answers, block.width, wl, true);
        multiply(to_neurons, wl, {slopes, 1, row}, readings, wl, block.width, s.answers, wl);
        learn(block);
    }

    void finish() {
        for (Index i = 0; i < w; ++i)
            for (Index k = 0; k < s.answers; ++k) to_unembed[i * stride + k] += to_readings[k * wl + i];
    }

  private:
    Index place(const Block& block, Index context, Index at) const {
        return (at * s.vocab + block.tokens[context * s.length + at]) * wl;
    }

    void activate(const Block& block) {
        for (Index c = 0; c < block.width; ++c)
            for (Index i = 0; i < wl; i += LANES) {
                Lanes sum{};
                for (Index at = 0; at < s.length; ++at) sum += lanes(tables + place(block, c, at) + i);
                lanes(by_contexts + c * wl + i) = larger(sum, Lanes{});
            }
        for (Index c = 0; c < block.width; c += LANES)
            for (Index i = 0; i < wl; i += LANES) transpose(by_contexts + c * wl + i, wl, by_lanes + i * row + c, row);
    }

    void learn(const Block& block) {
        for (Index c = 0; c < block.width; ++c)
            for (Index i = 0; i < wl; i += LANES) {
                const Lanes active = where(lanes(by_contexts + c * wl + i) > 0.0f, lanes(to_neurons + c * wl + i));
                for (Index at = 0; at < s.length; ++at) lanes(to_tables + place(block, c, at) + i) += active;
            }
    }

    const Shape s;
    const Index w, wl, stride, row;  // stride: padded A; row: distance between rows of a block
    Readout readout;
    const float *tables = {}, *unembed = {};
    float *to_tables = {}, *to_unembed = {};
    Buffer by_contexts, by_lanes;  // [row, wl] and [wl, row]: what neurons say
    Buffer to_neurons;             // [row, wl]
    Buffer readings, to_readings;  // [A, wl]: the unembedding in the other order
};

}  // namespace

MEMBENCH_KERNEL(PairMLP, Shape)
