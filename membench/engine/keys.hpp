// The frozen vectors of contexts that associative memories read. A context's key is the real part of a
// product of phasors, one of each token, which are tabulated, scaled to one length.
//
// d and n are the dimension of the vectors and the tokens; dl is d padded, and n is padded.
#pragma once

#include "kernel.hpp"

namespace membench {

// Keys of blocks of contexts, each of length `size`: by lanes, [d, row], for what is read of them, and by
// contexts, [row, dl], for the gradient. A Shape has `vocab`, `length` and `d`.
template <class Shape>
class Keys {
  public:
    Keys(const Shape& shape, Index row, Index blocks, float size)
        : s(shape),
          size(size),
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
            for (int lane = 0; lane < LANES; ++lane) square[lane] = size / std::sqrt(square[lane]);
            for (Index i = 0; i < d; ++i) lanes(keys + i * row + c) *= square;
        }
    }

    const Shape s;
    const float size;  // length of a key
    const Index d, dl, n, row;
    Buffer cosines, sines;      // [S, d, n]: of tokens
    Buffer imaginary;           // [row]: of a product of phasors
    Buffer lanes_, contexts_;   // [blocks, d, row] and [blocks, row, dl]
};

}  // namespace membench
