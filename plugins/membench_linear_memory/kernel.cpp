// Training of the linear associative memory: exact gradients, and Adam.
//
// The frozen output vectors and the matrix only ever act together, so they are multiplied first, once in a
// step. When all facts are used, the contexts' keys are made once for all steps of a call. What is left are
// two products: logits from keys, and the gradient from both.
//
// d, n and A are the dimension of the vectors, the tokens and the answers; dl is d padded, and n is padded.
#include "keys.hpp"

using namespace membench;

namespace {

struct Shape {
    Index vocab, length, answers, d;
    Index kept;  // numbers that a table of keys may have
    float gain;  // what is trained is the matrix divided by it
};

class LinearMemory {
  public:
    LinearMemory(const Shape& shape, const Facts& facts, const Run& run)
        : s(shape),
          d(s.d),
          dl(padded(d)),
          stride(padded(s.answers)),
          row(std::max(run.block, facts.width) + LANES),
          kept(!run.contexts && facts.groups * d * row <= s.kept ? facts.groups : 0),
          keys(s, row, std::max<Index>(kept, 1), 1.0f),
          readout(s.answers, d, row),
          readings(d * stride),
          to_readings(s.answers * dl) {}

    Index size() const { return d * dl; }

    // After the weights lie the phases [S, d, n] and the output vectors [d, padded A].
    void begin(const float* weights, float* gradient) {
        to_weights = gradient;
        const float* phases = weights + size();
        outputs = phases + s.length * d * padded(s.vocab);
        if (!known) keys.tabulate(phases);
        to_readings.clear();
        multiply(readings, stride, {weights, 1, dl}, outputs, stride, d, d, stride);
        for (Index k = 0; k < d * stride; k += LANES) lanes(readings + k) *= s.gain;
    }

    void exact(const Facts& facts, Score& score) {
        for (Index group = 0; group < facts.groups; ++group) {
            const Block block = facts.block(group, 1, s.answers, s.length);
            const Index place = kept ? group : 0;
            if (!known || !kept) keys.fill(block, place);
            learn(block, place, score);
        }
        known = true;
    }

    void block(const Block& block, Score& score) {
        keys.fill(block, 0);
        learn(block, 0, score);
        known = true;
    }

    void finish() {
        multiply(to_weights, dl, {outputs, stride, 1}, to_readings, dl, d, s.answers, dl);
        for (Index k = 0; k < d * dl; k += LANES) lanes(to_weights + k) *= s.gain;
    }

  private:
    void learn(const Block& block, Index place, Score& score) {
        const float* slopes = readout.to_logits(block, keys.by_lanes(place), readings, score);
        multiply(to_readings, dl, {slopes, row, 1}, keys.by_contexts(place), dl, s.answers, block.width, dl, true);
    }

    const Shape s;
    const Index d, dl, stride, row;  // stride: padded A; row: distance between rows of a block
    const Index kept;                // groups whose keys are kept
    bool known = false;              // the constants were seen, and what is kept of them was made
    Keys<Shape> keys;
    Readout readout;
    const float* outputs = {};
    float* to_weights = {};
    Buffer readings;     // [d, padded A]: the matrix, then the output vectors
    Buffer to_readings;  // [A, dl]
};

}  // namespace

MEMBENCH_KERNEL(LinearMemory, Shape)
