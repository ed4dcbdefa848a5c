// Training of the MLP associative memory: exact gradients, and Adam.
//
// The vectors of contexts and answers are frozen. When all facts are used, the contexts' keys are made once
// for all steps of a call. What is left are products of matrices: three from keys to logits, four back.
//
// d, m, n and A are the dimension of the vectors, the neurons, the tokens and the answers; dl and ml are d
// and m padded, and n is padded.
#include "keys.hpp"

using namespace membench;

namespace {

struct Shape {
    Index vocab, length, answers, d, neurons;
    Index kept;  // numbers that a table of keys may have
};

class MLPMemory {
  public:
    MLPMemory(const Shape& shape, const Facts& facts, const Run& run)
        : s(shape),
          d(s.d),
          dl(padded(d)),
          m(s.neurons),
          ml(padded(m)),
          stride(padded(s.answers)),
          row(std::max(run.block, facts.width) + LANES),
          kept(!run.contexts && facts.groups * d * row <= s.kept ? facts.groups : 0),
          keys(s, row, std::max<Index>(kept, 1), std::sqrt(float(d))),
          readout(s.answers, d, row),
          neurons(ml * row),
          to_neurons(m * row),
          stream(d * row),
          to_stream(d * row) {}

    Index size() const { return m * dl + d * ml; }

    // The first matrix [m, dl] and the second [d, ml]; after them the phases [S, d, n] and the vectors of answers
    // [d, padded A].
    void begin(const float* weights, float* gradient) {
        first = weights, second = weights + m * dl;
        to_first = gradient, to_second = gradient + m * dl;
        const float* phases = weights + size();
        outputs = phases + s.length * d * padded(s.vocab);
        if (!known) keys.tabulate(phases);
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

    void finish() {}

  private:
    void learn(const Block& block, Index place, Score& score) {
        const Index width = block.width;
        multiply(neurons, row, {first, dl, 1}, keys.by_lanes(place), row, m, d, width);
        for (Index j = 0; j < m; ++j)
            for (Index c = 0; c < width; c += LANES)
                lanes(neurons + j * row + c) = larger(lanes(neurons + j * row + c), Lanes{});
        multiply(stream, row, {second, ml, 1}, neurons, row, d, m, width);
        const float* slopes = readout.to_logits(block, stream, outputs, score);
        multiply(to_stream, row, {outputs, stride, 1}, slopes, row, d, s.answers, width);
        contract(to_second, ml, neurons, row, to_stream, row, m, d, width);
        multiply(to_neurons, row, {second, 1, ml}, to_stream, row, m, d, width);
        for (Index j = 0; j < m; ++j)
            for (Index c = 0; c < width; c += LANES) {
                Lanes& slope = lanes(to_neurons + j * row + c);
                slope = where(lanes(neurons + j * row + c) > 0.0f, slope);
            }
        multiply(to_first, dl, {to_neurons, row, 1}, keys.by_contexts(place), dl, m, width, dl, true);
    }

    const Shape s;
    const Index d, dl, m, ml, stride, row;  // stride: padded A; row: distance between rows of a block
    const Index kept;                       // groups whose keys are kept
    bool known = false;                     // the constants were seen, and what is kept of them was made
    Keys<Shape> keys;
    Readout readout;
    const float *first = {}, *second = {}, *outputs = {};
    float *to_first = {}, *to_second = {};
    Buffer neurons, to_neurons;  // [ml, row] and [m, row]
    Buffer stream, to_stream;    // [d, row]: what the second matrix writes
};

}  // namespace

MEMBENCH_KERNEL(MLPMemory, Shape)
