// Training of MLP transformers, one head and one hidden layer: exact gradients, and Adam.
//
// Nearly all the work is in the hidden layer, which runs with neurons side by side; the rest has
// contexts side by side.
#include "transformer.hpp"

using namespace membench;

namespace {

struct Shape {
    Index vocab, length, answers, d, neurons;
    std::int32_t bias;
    std::int32_t skip_position;  // the residual stream holds the position
    float factor;                // of the scores

    // GELU: x times the normal distribution function of x, whose absolute error is below 1e-7.
    static void activate(Lanes x, Lanes& value, Lanes& slope) {
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
};

using MLPTransformer = HeadThenLayer<Shape, Neurons<Shape>>;

}  // namespace

MEMBENCH_KERNEL(MLPTransformer, Shape)
