// What transformers of one head and one hidden layer share: the head that mixes the tokens, neurons, and
// their way from a block of contexts to its loss and back. Scores are taken relative to that of the last
// position, so that it needs none.
//
// d, n and w are the dimension of the stream, the tokens and the neurons; dl is d padded, and n and
// w are padded. `to_x` is the gradient of the loss by `x`.
#pragma once

#include "kernel.hpp"

namespace membench {

// A matrix of weights and its gradient, padded in the last axis.
struct Parameter {
    const float* w;
    float* g;
};

// Hands out the parameters, in the order of the Python side.
class Parameters {
  public:
    Parameters(const float* weights, float* gradient) : weights_(weights), gradient_(gradient) {}

    Parameter next(Index rows, Index columns) {
        const Parameter here{weights_ + size_, gradient_ + size_};
        size_ += rows * padded(columns);
        return here;
    }

    Index size() const { return size_; }

  private:
    const float* weights_;
    float* gradient_;
    Index size_ = 0;
};

// out[size, size] = factor a b, by rows of `row`.
inline void product(float* out, Index row, View a, View b, Index size, float factor) {
    for (Index r = 0; r < size; ++r)
        for (Index c = 0; c < size; ++c) {
            float sum = 0.0f;
            for (Index k = 0; k < size; ++k) sum += a.at(r, k) * b.at(k, c);
            out[r * row + c] = factor * sum;
        }
}

// One head of dimension d: from what it reads at each position to what it adds to the stream of the last position. A
// Shape has `length`, `d`, and `factor` of the scores.
template <class Shape>
class Attention {
  public:
    Attention(const Shape& shape, Index row)
        : factor(shape.factor),
          d(shape.d),
          dl(padded(d)),
          end(shape.length - 1),
          row(row),
          score_map(dl * dl),
          to_score_map(dl * dl),
          update_map(dl * dl),
          to_update_map(dl * dl),
          inputs(shape.length * d * row),
          to_inputs(shape.length * d * row),
          wanted(d * row),
          to_wanted(dl * row),
          weights(end * row),
          slopes(end * row),
          mixed(dl * row),
          to_mixed(d * row) {}

    void take(Parameters& parameters) {
        for (Parameter* map : {&query, &key, &value, &output}) *map = parameters.next(d, d);
    }

    void begin() {
        for (Buffer* buffer : {&to_score_map, &to_update_map}) buffer->clear();
        product(score_map, dl, {query.w, 1, dl}, {key.w, dl, 1}, d, factor);
        product(update_map, dl, {output.w, dl, 1}, {value.w, dl, 1}, d, 1.0f);
    }

    void finish() {
        product(query.g, dl, {key.w, dl, 1}, {to_score_map, 1, dl}, d, factor);
        product(key.g, dl, {query.w, dl, 1}, {to_score_map, dl, 1}, d, factor);
        product(value.g, dl, {output.w, 1, dl}, {to_update_map, dl, 1}, d, 1.0f);
        product(output.g, dl, {to_update_map, dl, 1}, {value.w, 1, dl}, d, 1.0f);
    }

    // [d, row]: what is read at a position; but for the last, its difference from what is read there
    float* input(Index at) { return inputs + at * d * row; }
    float* to_input(Index at) { return to_inputs + at * d * row; }

    void attend(Index width, float* stream) {
        multiply(wanted, row, {score_map, 1, dl}, input(end), row, d, d, width);
        for (Index c = 0; c < width; c += LANES) {
            for (Index at = 0; at < end; ++at) lanes(weights + at * row + c) = dot(wanted + c, input(at) + c);
            softmax(c);
            for (Index i = 0; i < d; ++i) {
                Lanes sum = lanes(input(end) + i * row + c);
                for (Index at = 0; at < end; ++at)
                    sum += lanes(weights + at * row + c) * lanes(input(at) + i * row + c);
                lanes(mixed + i * row + c) = sum;
            }
        }
        multiply(stream, row, {update_map, dl, 1}, mixed, row, d, d, width, true);
    }

    void attend_back(Index width, const float* to_stream) {
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

    // The same where a position sees nothing but itself; read: [d, width], padded by rows of zeros.
    void attend_to_itself(const float* read, Index width, float* stream) {
        multiply(stream, width, {update_map, dl, 1}, read, width, d, d, width, true);
    }

    void attend_to_itself_back(const float* read, const float* to_stream, Index width, float* to_read) {
        contract(to_update_map, dl, read, width, to_stream, width, d, d, width);
        multiply(to_read, width, {update_map, 1, dl}, to_stream, width, d, d, width, true);
    }

  private:
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

    const float factor;
    const Index d, dl, end, row;          // end: the last position; row: distance between rows of a block
    Parameter query, key, value, output;  // [d, dl]
    Buffer score_map, to_score_map, update_map, to_update_map;  // [d, dl]
    Buffer inputs, to_inputs;                                   // [S, d, row], and so on: of contexts
    Buffer wanted, to_wanted;                                   // what the head looks for
    Buffer weights, slopes;                                     // [S - 1, row]: of its attention
    Buffer mixed, to_mixed;
};

// Words, positions, and a head that reads them and adds to the stream of the last position. A Shape has also `vocab`,
// and `skip_position`: the residual stream holds the position.
template <class Shape>
class MixingHead {
  public:
    MixingHead(const Shape& shape, Index row)
        : attention(shape, row),
          s(shape),
          d(s.d),
          dl(padded(d)),
          n(padded(s.vocab)),
          end(s.length - 1),
          row(row),
          table(s.length * d * n),
          to_table(s.length * d * n),
          to_skip(d * n) {}

    void take(Parameters& parameters) {
        word = parameters.next(d, s.vocab);
        position = parameters.next(s.length, d);
        attention.take(parameters);
    }

    void begin() {
        for (Buffer* buffer : {&to_table, &to_skip}) buffer->clear();
        attention.begin();
        for (Index at = 0; at <= end; ++at)
            for (Index i = 0; i < d; ++i)
                for (Index t = 0; t < n; t += LANES)
                    lanes(table + (at * d + i) * n + t) = lanes(word.w + i * n + t) + position.w[at * dl + i];
    }

    // stream: [d, row]
    void forward(const Block& block, float* stream) {
        look_up(block, stream);
        attention.attend(block.width, stream);
    }

    void backward(const Block& block, const float* to_stream) {
        attention.attend_back(block.width, to_stream);
        look_up_back(block, to_stream);
    }

    void finish() {
        attention.finish();
        for (Index at = 0; at <= end; ++at) {
            add(word.g, to_table + at * d * n, d * n);
            for (Index i = 0; i < d; ++i) position.g[at * dl + i] += row_sum(to_table + (at * d + i) * n, n);
        }
        add(word.g, to_skip, d * n);
    }

    Parameter word, position;  // [d, n] and [S, dl]
    Attention<Shape> attention;

  private:
    void look_up(const Block& block, float* stream) {
        for (Index at = end; at >= 0; --at)
            for (Index i = 0; i < d; ++i) {
                const float* values = table + (at * d + i) * n;
                const float* last = attention.input(end) + i * row;
                float* out = attention.input(at) + i * row;
                for (Index c = 0; c < block.width; ++c) {
                    const float value = values[block.tokens[c * s.length + at]];
                    out[c] = at == end ? value : value - last[c];
                }
            }
        for (Index i = 0; i < d; ++i) {
            const float here = s.skip_position ? 0.0f : position.w[end * dl + i];
            for (Index c = 0; c < block.width; c += LANES)
                lanes(stream + i * row + c) = lanes(attention.input(end) + i * row + c) - here;
        }
    }

    void look_up_back(const Block& block, const float* to_stream) {
        float* to_last = attention.to_input(end);
        for (Index at = 0; at <= end; ++at)
            for (Index i = 0; i < d; ++i) {
                float* out = to_table + (at * d + i) * n;
                for (Index c = 0; c < block.width; ++c) {
                    const float pull = attention.to_input(at)[i * row + c];
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

    const Shape s;
    const Index d, dl, n, end, row;   // end: the last position; row: distance between rows of a block
    Buffer table, to_table, to_skip;  // [S, d, n] and [d, n]: of tokens
};

// One hidden layer, beside a stream that it adds to. A Shape has `d`, `neurons`, `bias`, and the neurons' activation:
// `activate(x, value, slope)` says its value and derivative at x.
template <class Shape>
class Neurons {
  public:
    Neurons(const Shape& shape, Index row)
        : s(shape),
          d_(shape.d),
          w_(padded(shape.neurons)),
          row_(row),
          values_(row * w_),
          slopes_(row * w_) {}

    void take(Parameters& parameters) {
        hidden_ = parameters.next(d_, w_);
        if (s.bias) bias_ = parameters.next(1, w_);
        project_ = parameters.next(d_, w_);
    }

    // The parameters of `other`, for a stream beside its own.
    void share(const Neurons& other) { hidden_ = other.hidden_, bias_ = other.bias_, project_ = other.project_; }

    void begin() {}

    // stream and after: [d, row]
    void forward(const float* stream, Index width, float* after) {
        multiply(values_, w_, {stream, 1, row_}, hidden_.w, w_, width, d_, w_);
        for (Index c = 0; c < width; ++c)
            for (Index k = 0; k < w_; k += LANES) {
                float *value = values_ + c * w_ + k, *slope = slopes_ + c * w_ + k;
                s.activate(s.bias ? lanes(value) + lanes(bias_.w + k) : lanes(value), lanes(value), lanes(slope));
            }
        for (Index i = 0; i < d_; ++i) std::copy_n(stream + i * row_, width, after + i * row_);
        contract(after, row_, values_, w_, project_.w, w_, width, d_, w_);
    }

    void backward(const float* stream, const float* to_after, Index width, float* to_stream) {
        multiply(project_.g, w_, {to_after, row_, 1}, values_, w_, d_, width, w_, true);
        multiply(values_, w_, {to_after, 1, row_}, project_.w, w_, width, d_, w_);
        for (Index k = 0; k < width * w_; k += LANES) lanes(values_ + k) *= lanes(slopes_ + k);
        for (Index c = 0; c < width && s.bias; ++c) add(bias_.g, values_ + c * w_, w_);
        multiply(hidden_.g, w_, {stream, row_, 1}, values_, w_, d_, width, w_, true);
        for (Index i = 0; i < d_; ++i) std::copy_n(to_after + i * row_, width, to_stream + i * row_);
        contract(to_stream, row_, values_, w_, hidden_.w, w_, width, d_, w_);
    }

    void finish() {}

  private:
    const Shape s;
    const Index d_, w_, row_;
    Parameter hidden_, project_;  // [d, w]
    Parameter bias_;              // [w]
    Buffer values_, slopes_;      // [contexts, w]
};

// What may come between a layer and the readout; here, nothing does.
struct NothingAbove {
    template <class Shape>
    NothingAbove(const Shape&, Index) {}
    void take(Parameters&) {}
    template <class Head, class Layer>
    void begin(Head&, const Layer&) {}
    void forward(const Block&, float*) {}
    void backward(const Block&, float*) {}
    template <class Head>
    void finish(Head&) {}
};

// A Model for the Trainer of kernel.hpp: a head that mixes tokens, then a layer that is made from (Shape, row) and has
// the methods of Neurons, then what is above it, if anything is. The parameters are those of the head, of the layer, of
// what is above, and `unembed`.
template <class Shape, class Layer, class Above = NothingAbove>
class HeadThenLayer {
  public:
    HeadThenLayer(const Shape& shape, const Facts& facts, const Run& run)
        : s(shape),
          row(std::max(run.block, facts.width) + LANES),
          head(s, row),
          layer(s, row),
          above(s, row),
          readout(s.answers, s.d, row),
          stream(s.d * row),
          to_stream(s.d * row),
          after(s.d * row),
          to_after(s.d * row) {
        take({nullptr, nullptr});
    }

    Index size() const { return size_; }

    void begin(const float* weights, float* gradient) {
        take({weights, gradient});
        head.begin();
        layer.begin();
        above.begin(head, layer);
    }

    void exact(const Facts& facts, Score& score) {
        for (Index group = 0; group < facts.groups; ++group) block(facts.block(group, 1, s.answers, s.length), score);
    }

    void block(const Block& block, Score& score) {
        head.forward(block, stream);
        layer.forward(stream, block.width, after);
        above.forward(block, after);
        readout(block, after, unembed.w, to_after, unembed.g, score);
        above.backward(block, to_after);
        layer.backward(stream, to_after, block.width, to_stream);
        head.backward(block, to_stream);
    }

    void finish() {
        above.finish(head);
        layer.finish();
        head.finish();
    }

  private:
    void take(Parameters parameters) {
        head.take(parameters);
        layer.take(parameters);
        above.take(parameters);
        unembed = parameters.next(s.d, s.answers);
        size_ = parameters.size();
    }

    const Shape s;
    const Index row;  // distance between rows of a block
    Index size_;
    MixingHead<Shape> head;
    Layer layer;
    Above above;
    Readout readout;
    Parameter unembed;                          // [d, padded answers]
    Buffer stream, to_stream, after, to_after;  // [d, row]: before the layer, and after it
};

}  // namespace membench
