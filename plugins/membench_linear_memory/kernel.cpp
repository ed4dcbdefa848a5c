// Training of the linear associative memory: exact gradients, and Adam.
//
// The frozen output vectors and the matrix only ever act together, so they are multiplied first, once in a
// step. A context's key, its frozen unit vector, is the real part of a product of phasors, one of each token,
// which are tabulated; and when all facts are used, so are the keys, once for all steps of a call. What is
// left are two products: logits from keys, and the gradient from both.
//
// d, n and A are the dimension of the vectors, the tokens and the answers; dl is d padded, and n is padded.
#include "kernel.hpp"

using namespace membench;

namespace {

struct Shape {
    Index vocab, length, answers, d;
    Index kept;  // numbers that a table of keys may have
    float gain;  // what is trained is the matrix divided by it
};

// Keys of blocks of contexts: by lanes, [d, row], for the logits, and by contexts, [row, dl], for the gradient.
class Keys {
  public:
    Keys(const Shape& shape, Index row, Index blocks)
        : s(shape),
          d(s.d),
          dl(padded(d)),
          n(padded(s.vocab)),
          row(row),
          cosines(s.length * d * n),
          sines(s.length * d * n),
          imaginary(row),
          lanes_(blocks * d * row),
          contexts_(blocks * row * dl) {}

    // phases: [S, d, n]
    void tabulate(const float* phases) {
        for (Index k = 0; k < s.length * d * n; ++k) {
            cosines[k] = float(std::cos(double(phases[k])));
            sines[k] = float(std::sin(double(phases[k])));
        }
    }

    void fill(const Block& block, Index place) {
        for (Index i = 0; i < d; ++i) bind(block, i, by_lanes(place) + i * row);
        normalise(block.width, by_lanes(place));
        for (Index i = 0; i < d; ++i)
            for (Index c = 0; c < block.width; ++c) by_contexts(place)[c * dl + i] = by_lanes(place)[i * row + c];
    }

    float* by_lanes(Index place) { return lanes_ + place * d * row; }
    float* by_contexts(Index place) { return contexts_ + place * row * dl; }

  private:
    // The real part of the product of the tokens' phasors, in one coordinate.
    void bind(const Block& block, Index i, float* real) {
        for (Index at = 0; at < s.length; ++at) {
            const float *cosine = cosines + (at * d + i) * n, *sine = sines + (at * d + i) * n;
            for (Index c = 0; c < block.width; ++c) {
                const Index token = block.tokens[c * s.length + at];
                const float x = at ? real[c] : 1.0f, y = at ? imaginary[c] : 0.0f;
                real[c] = x * cosine[token] - y * sine[token];
                imaginary[c] = x * sine[token] + y * cosine[token];
            }
        }
    }

    void normalise(Index width, float* keys) {
        for (Index c = 0; c < width; c += LANES) {
            Lanes square = every(1e-24f);  // a key of zeros stays one
            for (Index i = 0; i < d; ++i) square += lanes(keys + i * row + c) * lanes(keys + i * row + c);
            for (int lane = 0; lane < LANES; ++lane) square[lane] = 1.0f / std::sqrt(square[lane]);
            for (Index i = 0; i < d; ++i) lanes(keys + i * row + c) *= square;
        }
    }

    const Shape s;
    const Index d, dl, n, row;
    Buffer cosines, sines;      // [S, d, n]: of tokens
    Buffer imaginary;           // [row]: of a product of phasors
    Buffer lanes_, contexts_;   // [blocks, d, row] and [blocks, row, dl]
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
          keys(s, row, std::max<Index>(kept, 1)),
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
    Keys keys;
    Readout readout;
    const float* outputs = {};
    float* to_weights = {};
    Buffer readings;     // [d, padded A]: the matrix, then the output vectors
    Buffer to_readings;  // [A, dl]
};

}  // namespace

MEMBENCH_KERNEL(LinearMemory, Shape)
