// Training of MLP transformers, one head and one hidden layer: exact gradients, and Adam.
//
// Nearly all the work is in the hidden layer, which runs with neurons side by side; the rest has
// contexts side by side. Scores are taken relative to that of the last position.
//
// d, n and w are the dimension of the stream, the tokens and the neurons; dl is d padded, and n and
// w are padded. `to_x` is the gradient of the loss by `x`.
#include "kernel.hpp"

using namespace membench;

namespace {

struct Shape {
    Index vocab, length, answers, d, neurons;
    std::int32_t bias;
    std::int32_t skip_position;  // the residual stream holds the position
    float factor;                // of the scores
};

// The parameters in one array, in the order of the Python side.
template <class Float>
struct Parameters {
    Float* word;                          // [d, n]
    Float* position;                      // [S, dl]
    Float *query, *key, *value, *output;  // [d, dl]
    Float* hidden;                        // [d, w]
    Float* bias = {};                     // [w]
    Float* project;                       // [d, w]
    Float* unembed;                       // [d, padded answers]
    Index size = 0;

    Parameters(const Shape& s, Float* base) {
        auto next = [&](Index rows, Index columns) {
            Float* here = base + size;
            size += rows * padded(columns);
            return here;
        };
        word = next(s.d, s.vocab);
        position = next(s.length, s.d);
        for (Float** map : {&query, &key, &value, &output}) *map = next(s.d, s.d);
        hidden = next(s.d, s.neurons);
        if (s.bias) bias = next(1, s.neurons);
        project = next(s.d, s.neurons);
        unembed = next(s.d, s.answers);
    }
};

// x times the normal distribution function of x, whose absolute error is below 1e-7, and its derivative.
inline void gelu(Lanes x, Lanes& value, Lanes& slope) {
    const Lanes distance = (Lanes)((Bits)x & 0x7fffffff);
    const Lanes bell = exponential(distance * distance * -0.5f);
    const Lanes t = 1.0f / (1.0f + distance * 0.27f);
    Lanes tail = t * -0.12159691929f + 0.51005086985f;
    tail = tail * t - 0.42303205198f;
    tail = tail * t + 0.39904620474f;
    tail = tail * t + 0.01635107376f;
    tail = tail * t + 0.11918083545f;
    tail = tail * t * bell;
    const Lanes below = x > 0.0f ? 1.0f - tail : tail;
    value = x * below;
    slope = below + x * bell * 0.39894228f;
}

// out[size, size] = factor a b, by rows of `row`.
void product(float* out, Index row, View a, View b, Index size, float factor) {
    for (Index r = 0; r < size; ++r)
        for (Index c = 0; c < size; ++c) {
            float sum = 0.0f;
            for (Index k = 0; k < size; ++k) sum += a.at(r, k) * b.at(k, c);
            out[r * row + c] = factor * sum;
        }
}

// One hidden layer, beside a stream that it adds to.
class Neurons {
  public:
    Neurons(const Shape& shape, Index row)
        : d_(shape.d),
          w_(padded(shape.neurons)),
          row_(row),
          values_(row * w_),
          slopes_(row * w_) {}

    // stream and after: [d, row]
    void forward(const Parameters<const float>& w, const float* stream, Index width, float* after) {
        multiply(values_, w_, {stream, 1, row_}, w.hidden, w_, width, d_, w_);
        for (Index c = 0; c < width; ++c)
            for (Index k = 0; k < w_; k += LANES) {
                float *value = values_ + c * w_ + k, *slope = slopes_ + c * w_ + k;
                gelu(w.bias ? lanes(value) + lanes(w.bias + k) : lanes(value), lanes(value), lanes(slope));
            }
        for (Index i = 0; i < d_; ++i) std::copy_n(stream + i * row_, width, after + i * row_);
        contract(after, row_, values_, w_, w.project, w_, width, d_, w_);
    }

    void backward(const Parameters<const float>& w, const Parameters<float>& g, const float* stream,
                  const float* to_after, Index width, float* to_stream) {
        multiply(g.project, w_, {to_after, row_, 1}, values_, w_, d_, width, w_, true);
        multiply(values_, w_, {to_after, 1, row_}, w.project, w_, width, d_, w_);
        for (Index k = 0; k < width * w_; k += LANES) lanes(values_ + k) *= lanes(slopes_ + k);
        for (Index c = 0; c < width && g.bias; ++c) add(g.bias, values_ + c * w_, w_);
        multiply(g.hidden, w_, {stream, row_, 1}, values_, w_, d_, width, w_, true);
        for (Index i = 0; i < d_; ++i) std::copy_n(to_after + i * row_, width, to_stream + i * row_);
        contract(to_stream, row_, values_, w_, w.hidden, w_, width, d_, w_);
    }

  private:
    const Index d_, w_, row_;
    Buffer values_, slopes_;  // [contexts, w]
};

class MLPTransformer {
  public:
    MLPTransformer(const Shape& shape, const Facts& facts, const Run& run)
        : s(shape),
          d(s.d),
          dl(padded(d)),
          n(padded(s.vocab)),
          end(s.length - 1),
          row(std::max(run.block, facts.width) + LANES),
          w(s, nullptr),
          g(s, nullptr),
          neurons(s, row),
          readout(s.answers, d, row),
          table(s.length * d * n),
          to_table(s.length * d * n),
          to_skip(d * n),
          score_map(dl * dl),
          to_score_map(dl * dl),
          update_map(dl * dl),
          to_update_map(dl * dl),
          inputs(s.length * d * row),
          to_inputs(s.length * d * row),
          wanted(d * row),
          to_wanted(dl * row),
          weights(end * row),
          slopes(end * row),
          mixed(dl * row),
          to_mixed(d * row),
          stream(d * row),
          to_stream(d * row),
          after(d * row),
          to_after(d * row) {}

    Index size() const { return w.size; }

    void begin(const float* parameters, float* gradient) {
        w = Parameters<const float>(s, parameters);
        g = Parameters<float>(s, gradient);
        for (Buffer* buffer : {&to_table, &to_skip, &to_score_map, &to_update_map}) buffer->clear();
        product(score_map, dl, {w.query, 1, dl}, {w.key, dl, 1}, d, s.factor);
        product(update_map, dl, {w.output, dl, 1}, {w.value, dl, 1}, d, 1.0f);
        for (Index at = 0; at <= end; ++at)
            for (Index i = 0; i < d; ++i)
                for (Index t = 0; t < n; t += LANES)
                    lanes(table + (at * d + i) * n + t) = lanes(w.word + i * n + t) + w.position[at * dl + i];
    }

    void exact(const Facts& facts, Score& score) {
        for (Index group = 0; group < facts.groups; ++group) block(facts.block(group, 1, s.answers, s.length), score);
    }

    void block(const Block& block, Score& score) {
        const Index width = block.width;
        look_up(block);
        attend(width);
        neurons.forward(w, stream, width, after);
        readout(block, after, w.unembed, to_after, g.unembed, score);
        neurons.backward(w, g, stream, to_after, width, to_stream);
        attend_back(width);
        look_up_back(block);
    }

    void finish() {
        product(g.query, dl, {w.key, dl, 1}, {to_score_map, 1, dl}, d, s.factor);
        product(g.key, dl, {w.query, dl, 1}, {to_score_map, dl, 1}, d, s.factor);
        product(g.value, dl, {w.output, 1, dl}, {to_update_map, dl, 1}, d, 1.0f);
        product(g.output, dl, {to_update_map, dl, 1}, {w.value, 1, dl}, d, 1.0f);
        for (Index at = 0; at <= end; ++at) {
            add(g.word, to_table + at * d * n, d * n);
            for (Index i = 0; i < d; ++i) g.position[at * dl + i] = row_sum(to_table + (at * d + i) * n, n);
        }
        add(g.word, to_skip, d * n);
    }

  private:
    // inputs: [S, d, row], of which all but the last are differences from the last
    float* input(Index at) { return inputs + at * d * row; }
    float* to_input(Index at) { return to_inputs + at * d * row; }

    void look_up(const Block& block) {
        for (Index at = end; at >= 0; --at)
            for (Index i = 0; i < d; ++i) {
                const float* values = table + (at * d + i) * n;
                const float* last = input(end) + i * row;
                float* out = input(at) + i * row;
                for (Index c = 0; c < block.width; ++c) {
                    const float value = values[block.tokens[c * s.length + at]];
                    out[c] = at == end ? value : value - last[c];
                }
            }
    }

    void look_up_back(const Block& block) {
        float* to_last = to_input(end);
        for (Index at = 0; at <= end; ++at)
            for (Index i = 0; i < d; ++i) {
                float* out = to_table + (at * d + i) * n;
                for (Index c = 0; c < block.width; ++c) {
                    const float pull = to_input(at)[i * row + c];
                    out[block.tokens[c * s.length + at]] += pull;
                    if (at < end) to_last[i * row + c] -= pull;
                }
            }
        Buffer& skip = s.skip_position ? to_table : to_skip;
        const Index first = s.skip_position ? end * d * n : 0;
        for (Index i = 0; i < d; ++i)
            for (Index c = 0; c < block.width; ++c)
                skip[first + i * n + block.tokens[c * s.length + end]] += to_stream[i * row + c];
    }

    void attend(Index width) {
        multiply(wanted, row, {score_map, 1, dl}, input(end), row, d, d, width);
        for (Index c = 0; c < width; c += LANES) {
            for (Index at = 0; at < end; ++at) lanes(weights + at * row + c) = dot(wanted + c, input(at) + c);
            softmax(c);
            for (Index i = 0; i < d; ++i) {
                const Lanes last = lanes(input(end) + i * row + c);
                Lanes sum = last;
                for (Index at = 0; at < end; ++at)
                    sum += lanes(weights + at * row + c) * lanes(input(at) + i * row + c);
                lanes(mixed + i * row + c) = sum;
                lanes(stream + i * row + c) = s.skip_position ? last : last - w.position[end * dl + i];
            }
        }
        multiply(stream, row, {update_map, dl, 1}, mixed, row, d, d, width, true);
    }

    void attend_back(Index width) {
        contract(to_update_map, dl, mixed, row, to_stream, row, d, d, width);
        multiply(to_mixed, row, {update_map, 1, dl}, to_stream, row, d, d, width);
        for (Index c = 0; c < width; c += LANES) {
            for (Index at = 0; at < end; ++at) lanes(slopes + at * row + c) = dot(to_mixed + c, input(at) + c);
            softmax_back(c);
            for (Index i = 0; i < d; ++i) {
                Lanes sum{};
                for (Index at = 0; at < end; ++at) {
                    const Lanes a = lanes(weights + at * row + c), z = lanes(slopes + at * row + c);
                    lanes(to_input(at) + i * row + c) =
                        a * lanes(to_mixed + i * row + c) + z * lanes(wanted + i * row + c);
                    sum += z * lanes(input(at) + i * row + c);
                }
                lanes(to_wanted + i * row + c) = sum;
                lanes(to_input(end) + i * row + c) = lanes(to_mixed + i * row + c);
            }
        }
        contract(to_score_map, dl, to_wanted, row, input(end), row, d, d, width);
        multiply(to_input(end), row, {score_map, dl, 1}, to_wanted, row, d, d, width, true);
    }

    Lanes dot(const float* a, const float* b) const {
        Lanes sum{};
        for (Index i = 0; i < d; ++i) sum += lanes(a + i * row) * lanes(b + i * row);
        return sum;
    }

    void softmax(Index c) {
        Lanes best{};
        for (Index at = 0; at < end; ++at) best = larger(best, lanes(weights + at * row + c));
        Lanes sum = exponential(-best);
        for (Index at = 0; at < end; ++at) {
            lanes(weights + at * row + c) = exponential(lanes(weights + at * row + c) - best);
            sum += lanes(weights + at * row + c);
        }
        for (Index at = 0; at < end; ++at) lanes(weights + at * row + c) /= sum;
    }

    void softmax_back(Index c) {
        Lanes mean{};
        for (Index at = 0; at < end; ++at) mean += lanes(weights + at * row + c) * lanes(slopes + at * row + c);
        for (Index at = 0; at < end; ++at) {
            Lanes& slope = lanes(slopes + at * row + c);
            slope = lanes(weights + at * row + c) * (slope - mean);
        }
    }

    const Shape s;
    const Index d, dl, n, end, row;  // end: the last position; row: distance between rows of a block
    Parameters<const float> w;
    Parameters<float> g;
    Neurons neurons;
    Readout readout;
    Buffer table, to_table, to_skip;                            // [S, d, n] and [d, n]: of tokens
    Buffer score_map, to_score_map, update_map, to_update_map;  // [d, dl]
    Buffer inputs, to_inputs;                                   // [S, d, row], and so on: of contexts
    Buffer wanted, to_wanted;                                   // what the head looks for
    Buffer weights, slopes;                                     // [S - 1, row]: of its attention
    Buffer mixed, to_mixed, stream, to_stream, after, to_after;
};

}  // namespace

MEMBENCH_KERNEL(MLPTransformer, Shape)
