// Training of the attention-simulated MLP with tied heads: exact gradients, and Adam.
//
// Such a head is a neuron whose activation is z sigmoid(alpha z), and is trained as one.
#include "transformer.hpp"

using namespace membench;

namespace {

struct Shape {
    Index vocab, length, answers, d, neurons;
    float alpha;
    static constexpr bool bias = true;
    static constexpr bool skip_position = true;
    static constexpr float factor = 1.0f;  // of the first head's scores

    void activate(Lanes z, Lanes& value, Lanes& slope) const {
        const Lanes weight = sigmoid(alpha * z);
        value = z * weight;
        slope = weight + alpha * value * (1.0f - weight);
    }
};

using TiedAttentionMLP = HeadThenLayer<Shape, Neurons<Shape>>;

}  // namespace

MEMBENCH_KERNEL(TiedAttentionMLP, Shape)
