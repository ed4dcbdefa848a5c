// Training of the MLP associative memory: exact gradients, and Adam.
//
// The vectors of contexts and answers are frozen. When all facts are used, the contexts' keys are made once
// for all steps of a call. What is left are products of matrices: three from keys to logits, four back. With
// several experts, the neurons of each count by its share of a softmax.
//
// d, m, K, n and A are the dimension of the vectors, the neurons, the experts, the tokens and the answers; dl
// and ml are d and m padded, and n is padded.
#include "keys.hpp"

using namespace membench;

namespace {

struct Shape {
    Index vocab, length, answers, d, neurons, experts;
    Index kept;           // numbers that a table of keys may have
    std::int32_t smooth;  // SiLU in place of ReLU
};

class MLPMemory {
  public:
    MLPMemory(const Shape& shape, const Facts& facts, const Run& run)
        : s(shape),
          d(s.d),
          dl(padded(d)),
          m(s.neurons),
          ml(padded(m)),
          experts(s.experts),
          stride(padded(s.answers)),
          row(std::max(run.block, facts.width) + LANES),
          kept(!run.contexts && facts.groups * d * row <= s.kept ? facts.groups : 0),
          keys(s, row, std::max<Index>(kept, 1), std::sqrt(float(d))),
          readout(s.answers, d, row),
          neurons(m * row),
          steepness(m * row),
          held(ml * row),
          to_neurons(m * row),
          shares(experts * row),
          to_shares(experts * row),
          stream(d * row),
          to_stream(d * row) {}

    Index size() const { return m * dl + d * ml + (experts > 1 ? experts * dl : 0); }

    // The first matrix [m, dl], the second [d, ml] and, of several experts, the gate [K, dl]; after them the phases
    // [S, d, n] and the vectors of answers [d, padded A].
    void begin(const float* weights, float* gradient) {
        first = weights, second = first + m * dl, gate = second + d * ml;
        to_first = gradient, to_second = to_first + m * dl, to_gate = to_second + d * ml;
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
        activate(width);
        share(width, place);
        multiply(stream, row, {second, ml, 1}, held, row, d, m, width);
        const float* slopes = readout.to_logits(block, stream, outputs, score);
        multiply(to_stream, row, {outputs, stride, 1}, slopes, row, d, s.answers, width);
        contract(to_second, ml, held, row, to_stream, row, m, d, width);
        multiply(to_neurons, row, {second, 1, ml}, to_stream, row, m, d, width);
        learn_shares(width, place);
        each(width, [&](Index k, Index) { lanes(to_neurons + k) *= lanes(steepness + k); });
        multiply(to_first, dl, {to_neurons, row, 1}, keys.by_contexts(place), dl, m, width, dl, true);
    }

    void activate(Index width) {
        each(width, [&](Index k, Index) {
            Lanes& neuron = lanes(neurons + k);
            const Lanes open = s.smooth ? sigmoid(neuron) : where(neuron > 0.0f, every(1.0f));
            lanes(steepness + k) = s.smooth ? open * (1.0f + neuron * (1.0f - open)) : open;
            neuron *= open;
        });
    }

    // What each neuron is read as: multiplied by the share of its expert.
    void share(Index width, Index place) {
        if (experts == 1) {
            each(width, [&](Index k, Index) { lanes(held + k) = lanes(neurons + k); });
            return;
        }
        multiply(shares, row, {gate, dl, 1}, keys.by_lanes(place), row, experts, d, width);
        for (Index c = 0; c < width; c += LANES) {
            Lanes best = lanes(shares + c), sum{};
            for (Index e = 1; e < experts; ++e) best = larger(best, lanes(shares + e * row + c));
            for (Index e = 0; e < experts; ++e) {
                Lanes& one = lanes(shares + e * row + c);
                one = exponential(one - best);
                sum += one;
            }
            for (Index e = 0; e < experts; ++e) lanes(shares + e * row + c) /= sum;
        }
        each(width, [&](Index k, Index share) { lanes(held + k) = lanes(neurons + k) * lanes(shares + share); });
    }

    // From the slopes of what is read of the neurons to those of the neurons, and of the scores of the experts.
    void learn_shares(Index width, Index place) {
        if (experts == 1) return;
        to_shares.clear();
        each(width, [&](Index k, Index share) {
            lanes(to_shares + share) += lanes(to_neurons + k) * lanes(neurons + k);
            lanes(to_neurons + k) *= lanes(shares + share);
        });
        for (Index c = 0; c < width; c += LANES) {
            Lanes mean{};
            for (Index e = 0; e < experts; ++e) mean += lanes(shares + e * row + c) * lanes(to_shares + e * row + c);
            for (Index e = 0; e < experts; ++e)
                lanes(to_shares + e * row + c) = lanes(shares + e * row + c) * (lanes(to_shares + e * row + c) - mean);
        }
        multiply(to_gate, dl, {to_shares, row, 1}, keys.by_contexts(place), dl, experts, width, dl, true);
    }

    // Calls with the places of all neurons and of their experts, a vector of contexts at a time.
    template <class Do>
    void each(Index width, Do todo) {
        for (Index j = 0; j < m; ++j)
            for (Index c = 0; c < width; c += LANES) todo(j * row + c, j * experts / m * row + c);
    }

    const Shape s;
    const Index d, dl, m, ml, experts, stride, row;  // stride: padded A; row: distance between rows of a block
    const Index kept;                                // groups whose keys are kept
    bool known = false;                              // the constants were seen, and what is kept of them was made
    Keys<Shape> keys;
    Readout readout;
    const float *first = {}, *second = {}, *gate = {}, *outputs = {};
    float *to_first = {}, *to_second = {}, *to_gate = {};
    Buffer neurons, steepness, held, to_neurons;  // [m, row], but held [ml, row]
    Buffer shares, to_shares;                     // [K, row]
    Buffer stream, to_stream;                     // [d, row]: what the second matrix writes
};

}  // namespace

MEMBENCH_KERNEL(MLPMemory, Shape)
