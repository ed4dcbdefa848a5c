// Training of MLP transformers, layers of one head and neurons: exact gradients, and Adam.
//
// Nearly all the work is in the neurons, which lie side by side; the rest has contexts side by side.
// Several layers are for two positions. The first position sees nothing but itself, so that whatever it holds is a
// table of tokens at every layer; above the first layer, only the last position is computed for each context.
#include "transformer.hpp"

using namespace membench;

namespace {

struct Shape {
    Index vocab, length, answers, d, neurons, layers;
    std::int32_t bias;
    std::int32_t skip_position;  // the residual stream holds the position
    float factor;                // of the scores

    static void activate(Lanes x, Lanes& value, Lanes& slope) { gelu(x, value, slope); }
};

// A layer at the first position, with tokens side by side. `now` is the stream before it and then after it, [d, n].
class FirstPosition {
  public:
    explicit FirstPosition(const Shape& shape)
        : s_(shape),
          d_(s_.d),
          n_(padded(s_.vocab)),
          neurons_(s_, n_),
          read_(padded(d_) * n_),
          to_read_(d_ * n_),
          stream_(d_ * n_),
          to_stream_(d_ * n_) {}

    const float* read() { return read_; }  // [d, n]: what heads read there
    float* to_read() { return to_read_; }

    void open(const float* now, Parameter position) {
        to_read_.clear();
        for (Index i = 0; i < d_; ++i)
            for (Index t = 0; t < n_; t += LANES)
                lanes(read_ + i * n_ + t) = lanes(now + i * n_ + t) + (s_.skip_position ? 0.0f : position.w[i]);
    }

    void open_back(float* to_now, Parameter position) {
        add(to_now, to_read_, d_ * n_);
        for (Index i = 0; i < d_ && !s_.skip_position; ++i) position.g[i] += row_sum(to_read_ + i * n_, n_);
    }

    void forward(Attention<Shape>& attention, const Neurons<Shape>& neurons, float* now) {
        neurons_.share(neurons);
        std::copy_n(now, d_ * n_, (float*)stream_);
        attention.attend_to_itself(read_, n_, stream_);
        neurons_.forward(stream_, n_, now);
    }

    void backward(Attention<Shape>& attention, float* to_now) {
        neurons_.backward(stream_, to_now, n_, to_stream_);
        attention.attend_to_itself_back(read_, to_stream_, n_, to_read_);
        std::copy_n((float*)to_stream_, d_ * n_, to_now);
    }

  private:
    const Shape s_;
    const Index d_, n_;
    Neurons<Shape> neurons_;
    Buffer read_, to_read_;      // [d, n]; the first is padded by rows of zeros
    Buffer stream_, to_stream_;  // [d, n]: between the head and the neurons
};

// A layer above the first. `now` is the stream of contexts at the last position, [d, row].
struct DeeperLayer {
    DeeperLayer(const Shape& shape, Index row)
        : first(shape),
          attention(shape, row),
          neurons(shape, row),
          s(shape),
          n(padded(s.vocab)),
          row(row),
          stream(s.d * row),
          to_stream(s.d * row) {}

    void forward(const Block& block, float* now, Parameter position) {
        for (Index i = 0; i < s.d; ++i) {
            const float here = s.skip_position ? 0.0f : position.w[padded(s.d) + i];
            float *last = attention.input(1) + i * row, *difference = attention.input(0) + i * row;
            const float* table = first.read() + i * n;
            for (Index c = 0; c < block.width; ++c) {
                stream[i * row + c] = now[i * row + c];
                last[c] = now[i * row + c] + here;
                difference[c] = table[block.tokens[2 * c]] - last[c];
            }
        }
        attention.attend(block.width, stream);
        neurons.forward(stream, block.width, now);
    }

    void backward(const Block& block, float* to_now, Parameter position) {
        neurons.backward(stream, to_now, block.width, to_stream);
        attention.attend_back(block.width, to_stream);
        for (Index i = 0; i < s.d; ++i) {
            float *to_last = attention.to_input(1) + i * row, *to_table = first.to_read() + i * n;
            const float* to_difference = attention.to_input(0) + i * row;
            for (Index c = 0; c < block.width; ++c) {
                to_table[block.tokens[2 * c]] += to_difference[c];
                to_last[c] -= to_difference[c];
                to_now[i * row + c] = to_stream[i * row + c] + to_last[c];
            }
            if (!s.skip_position) position.g[padded(s.d) + i] += row_sum(to_last, block.width);
        }
    }

    FirstPosition first;
    Attention<Shape> attention;
    Neurons<Shape> neurons;

  private:
    const Shape s;
    const Index n, row;
    Buffer stream, to_stream;  // [d, row]: between the head and the neurons
};

// What HeadThenLayer has above its layer.
class DeeperLayers {
  public:
    DeeperLayers(const Shape& shape, Index row) : s_(shape), first_(s_), now_(s_.d * padded(s_.vocab)) {
        for (Index layer = 1; layer < s_.layers; ++layer) layers_.emplace_back(s_, row);
    }

    void take(Parameters& parameters) {
        for (DeeperLayer& layer : layers_) {
            layer.attention.take(parameters);
            layer.neurons.take(parameters);
        }
    }

    void begin(MixingHead<Shape>& head, const Neurons<Shape>& neurons) {
        if (layers_.empty()) return;
        const Index n = padded(s_.vocab);
        position_ = head.position;
        for (Index i = 0; i < s_.d; ++i)
            for (Index t = 0; t < n; t += LANES)
                lanes(now_ + i * n + t) = lanes(head.word.w + i * n + t) + (s_.skip_position ? position_.w[i] : 0.0f);
        first_.open(now_, position_);
        first_.forward(head.attention, neurons, now_);
        for (DeeperLayer& layer : layers_) {
            layer.attention.begin();
            layer.first.open(now_, position_);
            if (&layer != &layers_.back()) layer.first.forward(layer.attention, layer.neurons, now_);
        }
    }

    void forward(const Block& block, float* now) {
        for (DeeperLayer& layer : layers_) layer.forward(block, now, position_);
    }

    void backward(const Block& block, float* to_now) {
        for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) layer->backward(block, to_now, position_);
    }

    void finish(MixingHead<Shape>& head) {
        if (layers_.empty()) return;
        const Index n = padded(s_.vocab);
        now_.clear();  // from here on the gradient; no answer is read off the first position
        for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
            if (layer != layers_.rbegin()) layer->first.backward(layer->attention, now_);
            layer->first.open_back(now_, position_);
            layer->attention.finish();
        }
        first_.backward(head.attention, now_);
        first_.open_back(now_, position_);
        add(head.word.g, now_, s_.d * n);
        for (Index i = 0; i < s_.d && s_.skip_position; ++i) position_.g[i] += row_sum(now_ + i * n, n);
    }

  private:
    const Shape s_;
    FirstPosition first_;  // of the layer below all these
    std::vector<DeeperLayer> layers_;
    Parameter position_;  // [2, padded d]
    Buffer now_;          // [d, n]: the stream of tokens at the first position, then its gradient
};

using MLPTransformer = HeadThenLayer<Shape, Neurons<Shape>, DeeperLayers>;

}  // namespace

MEMBENCH_KERNEL(MLPTransformer, Shape)
