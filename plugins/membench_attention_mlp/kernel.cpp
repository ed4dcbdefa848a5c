// Training of the attention-simulated MLP with an explicit mask: exact gradients, and Adam.
//
// A head that acts as a neuron reads t = [content | 1] of the last position, three times: its score is
// (q . t)(k . t), and it writes sigmoid(score) (v . t). The three maps lie side by side, so that each product
// with them is one product, of long rows.
#include "transformer.hpp"

using namespace membench;

namespace {

struct Shape {
    Index vocab, length, answers, d, neurons;
    static constexpr bool skip_position = true;
    static constexpr float factor = 1.0f;  // of the first head's scores
};

// The heads that act as neurons, beside a stream that they add to.
class Heads {
  public:
    Heads(const Shape& shape, Index row)
        : d_(shape.d),
          w_(padded(shape.neurons)),
          row_(row),
          maps_((d_ + 1) * 3 * w_),
          to_maps_((d_ + 1) * 3 * w_),
          token_((d_ + 1) * row),
          values_(row * w_),
          slopes_(row * 3 * w_) {
        std::fill_n(token_ + d_ * row, row, 1.0f);
    }

    void take(Parameters& parameters) {
        for (Parameter* map : {&query_, &key_, &value_}) *map = parameters.next(d_ + 1, w_);
        output_ = parameters.next(d_, w_);
    }

    void begin() {
        to_maps_.clear();
        const float* map[] = {query_.w, key_.w, value_.w};
        for (Index i = 0; i <= d_; ++i)
            for (Index m = 0; m < 3; ++m) std::copy_n(map[m] + i * w_, w_, maps_ + (3 * i + m) * w_);
    }

    // stream and after: [d, row]
    void forward(const float* stream, Index width, float* after) {
        for (Index i = 0; i < d_; ++i) {
            std::copy_n(stream + i * row_, width, token_ + i * row_);
            std::copy_n(stream + i * row_, width, after + i * row_);
        }
        multiply(slopes_, 3 * w_, {token_, 1, row_}, maps_, 3 * w_, width, d_ + 1, 3 * w_);
        for (Index c = 0; c < width; ++c)
            for (Index k = 0; k < w_; k += LANES) attend_to_self(slopes_ + c * 3 * w_ + k, values_ + c * w_ + k);
        contract(after, row_, values_, w_, output_.w, w_, width, d_, w_);
    }

    void backward(const float*, const float* to_after, Index width, float* to_stream) {
        multiply(output_.g, w_, {to_after, row_, 1}, values_, w_, d_, width, w_, true);
        multiply(values_, w_, {to_after, 1, row_}, output_.w, w_, width, d_, w_);
        for (Index c = 0; c < width; ++c)
            for (Index m = 0; m < 3; ++m)
                for (Index k = 0; k < w_; k += LANES) lanes(slopes_ + (3 * c + m) * w_ + k) *= lanes(values_ + c * w_ + k);
        multiply(to_maps_, 3 * w_, {token_, row_, 1}, slopes_, 3 * w_, d_ + 1, width, 3 * w_, true);
        for (Index i = 0; i < d_; ++i) std::copy_n(to_after + i * row_, width, to_stream + i * row_);
        contract(to_stream, row_, slopes_, 3 * w_, maps_, 3 * w_, width, d_, 3 * w_);
    }

    void finish() {
        float* map[] = {query_.g, key_.g, value_.g};
        for (Index i = 0; i <= d_; ++i)
            for (Index m = 0; m < 3; ++m) std::copy_n(to_maps_ + (3 * i + m) * w_, w_, map[m] + i * w_);
    }

  private:
    // From the query, key and value of eight heads to what they write, and to its slopes by these three.
    void attend_to_self(float* at, float* written) {
        Lanes &query = lanes(at), &key = lanes(at + w_), &value = lanes(at + 2 * w_);
        const Lanes weight = sigmoid(query * key);
        const Lanes slope = value * weight * (1.0f - weight), by_key = slope * query;
        lanes(written) = weight * value;
        query = slope * key;
        key = by_key;
        value = weight;
    }

    const Index d_, w_, row_;
    Parameter query_, key_, value_;  // [d + 1, w]
    Parameter output_;               // [d, w]
    Buffer maps_, to_maps_;          // [d + 1, 3, w]: query, key and value
    Buffer token_;                   // [d + 1, row]: the content, and 1
    Buffer values_;                  // [contexts, w]: what each head writes
    Buffer slopes_;                  // [contexts, 3, w]
};

using AttentionMLP = HeadThenLayer<Shape, Heads>;

}  // namespace

MEMBENCH_KERNEL(AttentionMLP, Shape)
