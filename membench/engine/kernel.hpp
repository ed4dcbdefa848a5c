// What fused training kernels share: vector arithmetic, two matrix products, the cross-entropy of a
// block of contexts, Adam, and the loop over steps. A kernel brings its model: see the end.
//
// Written with the vector types that GCC and Clang have in common, so that the same text is fast on
// x86 and ARM. All sums run in a fixed order: a run repeats bit for bit.
//
// Arrays are padded to whole vectors in their last axis, and start on a vector's boundary. Most of
// them are "by lanes": one row for each coordinate, and tokens, answers, contexts or heads side by side in it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

namespace membench {

using Index = std::int64_t;
constexpr Index LANES = 8;

typedef float Lanes __attribute__((vector_size(4 * LANES)));
typedef std::int32_t Bits __attribute__((vector_size(4 * LANES)));

inline Index padded(Index size) { return (size + LANES - 1) / LANES * LANES; }

inline Lanes& lanes(float* at) { return *reinterpret_cast<Lanes*>(at); }
inline const Lanes& lanes(const float* at) { return *reinterpret_cast<const Lanes*>(at); }
// A load that the compiler keeps in a register: GCC would rather repeat it for each use.
inline Lanes once(const float* at) { return *reinterpret_cast<const volatile Lanes*>(at); }
inline Lanes every(float value) { return Lanes{} + value; }
inline Lanes larger(Lanes a, Lanes b) { return a > b ? a : b; }
inline Lanes smaller(Lanes a, Lanes b) { return a < b ? a : b; }
inline Lanes where(Bits mask, Lanes value) { return (Lanes)(mask & (Bits)value); }

#if defined(__clang__) || __GNUC__ >= 12
#define MEMBENCH_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define MEMBENCH_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, Bits{__VA_ARGS__})
#endif

inline float total(Lanes v) {
    v += MEMBENCH_SHUFFLE(v, v, 4, 5, 6, 7, 0, 1, 2, 3);
    v += MEMBENCH_SHUFFLE(v, v, 2, 3, 0, 1, 6, 7, 4, 5);
    return v[0] + v[1];
}

// The sums of eight vectors, side by side.
inline Lanes totals(const Lanes* v) {
    auto pairs = [](Lanes a, Lanes b) {
        return MEMBENCH_SHUFFLE(a, b, 0, 8, 2, 10, 4, 12, 6, 14) + MEMBENCH_SHUFFLE(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
    };
    auto fours = [](Lanes a, Lanes b) {
        return MEMBENCH_SHUFFLE(a, b, 0, 1, 8, 9, 4, 5, 12, 13) + MEMBENCH_SHUFFLE(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
    };
    const Lanes a = fours(pairs(v[0], v[1]), pairs(v[2], v[3])), b = fours(pairs(v[4], v[5]), pairs(v[6], v[7]));
    return MEMBENCH_SHUFFLE(a, b, 0, 1, 2, 3, 8, 9, 10, 11) + MEMBENCH_SHUFFLE(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
}

// For x up to 88; relative error below 2e-7 for |x| < 20, and 4e-7 beyond. The lower end is cut off
// where it no longer matters, so that products with the result do not become subnormal, which is
// slow on many processors.
inline Lanes exponential(Lanes x) {
    const float round = 12582912.0f;  // adding it leaves the nearest whole number in the low bits
    x = larger(x, every(-64.0f));
    const Lanes shifted = x * 1.44269504f + round;
    const Lanes r = x - (shifted - round) * 0.693147181f;
    Lanes p = r * 8.290306160e-3f + 4.189797535e-2f;
    p = p * r + 0.1666763658f;
    p = p * r + 0.4999914919f;
    p = p * r + 0.9999997070f;
    p = p * r + 1.0f;
    return (Lanes)((Bits)p + ((Bits)shifted << 23));
}

// For normal x > 0; absolute error below 1e-7 times the larger of 1 and the result.
inline Lanes logarithm(Lanes x) {
    const Bits bits = (Bits)x - 0x3f3504f3;  // so that the mantissa lies in [sqrt(1/2), sqrt(2))
    const Bits exponent = bits >> 23;
    const Lanes m = (Lanes)((bits & 0x007fffff) + 0x3f3504f3) - 1.0f;
    const Lanes n = __builtin_convertvector(exponent, Lanes);
    const Lanes square = m * m;
    Lanes p = m * 7.0376836292e-2f - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    p = p * m * square - n * 2.12194440e-4f - square * 0.5f;
    return m + p + n * 0.693359375f;
}

inline Lanes sigmoid(Lanes x) { return 1.0f / (1.0f + exponential(smaller(-x, every(88.0f)))); }

inline void sigmoid(float* at, Index size) {
    for (Index k = 0; k < size; k += LANES) lanes(at + k) = sigmoid(lanes(at + k));
}

// GELU and its slope: x times the normal distribution function of x, whose absolute error is below 1e-7.
inline void gelu(Lanes x, Lanes& value, Lanes& slope) {
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

inline void add(float* to, const float* from, Index size) {
    for (Index k = 0; k < size; k += LANES) lanes(to + k) += lanes(from + k);
}

inline float row_sum(const float* row, Index size) {
    Lanes sum{};
    for (Index k = 0; k < size; k += LANES) sum += lanes(row + k);
    return total(sum);
}

// A matrix of scalars, of which a transpose or a part is another view.
struct View {
    const float* data;
    Index row, column;  // distances

    float at(Index r, Index c) const { return data[r * row + c * column]; }
    View below(Index r) const { return {data + r * row, row, column}; }
    View right(Index c) const { return {data + c * column, row, column}; }
};

template <int R, int V>
inline void multiply_tile(float* out, Index out_row, View a, const float* b, Index b_row, Index inner, bool add) {
    Lanes sum[R][V];
    for (int r = 0; r < R; ++r)
        for (int v = 0; v < V; ++v) sum[r][v] = add ? lanes(out + r * out_row + v * LANES) : Lanes{};
    for (Index k = 0; k < inner; ++k) {
        Lanes shared[V];
        for (int v = 0; v < V; ++v) shared[v] = once(b + k * b_row + v * LANES);
        for (int r = 0; r < R; ++r) {
            const float scalar = a.at(r, k);
            for (int v = 0; v < V; ++v) sum[r][v] += scalar * shared[v];
        }
    }
    for (int r = 0; r < R; ++r)
        for (int v = 0; v < V; ++v) lanes(out + r * out_row + v * LANES) = sum[r][v];
}

template <int V>
inline void multiply_rows(float* out, Index out_row, View a, const float* b, Index b_row, Index rows, Index inner,
                          bool add) {
    Index r = 0;
    for (; r + 4 <= rows; r += 4) multiply_tile<4, V>(out + r * out_row, out_row, a.below(r), b, b_row, inner, add);
    out += r * out_row;
    if (rows - r == 3) multiply_tile<3, V>(out, out_row, a.below(r), b, b_row, inner, add);
    if (rows - r == 2) multiply_tile<2, V>(out, out_row, a.below(r), b, b_row, inner, add);
    if (rows - r == 1) multiply_tile<1, V>(out, out_row, a.below(r), b, b_row, inner, add);
}

// out[rows, width] = (out +) a[rows, inner] b[inner, width], where width is the padded axis.
inline void multiply(float* out, Index out_row, View a, const float* b, Index b_row, Index rows, Index inner,
                     Index width, bool add = false) {
    for (Index w = 0, left = width / LANES; left > 0;) {
        const Index taken = left == 1 ? 1 : left == 2 || left == 4 ? 2 : 3;  // one alone keeps the processor waiting
        if (taken == 3) multiply_rows<3>(out + w, out_row, a, b + w, b_row, rows, inner, add);
        if (taken == 2) multiply_rows<2>(out + w, out_row, a, b + w, b_row, rows, inner, add);
        if (taken == 1) multiply_rows<1>(out + w, out_row, a, b + w, b_row, rows, inner, add);
        left -= taken;
        w += taken * LANES;
    }
}

template <int R, int C>
inline void contract_tile(Lanes* sums, const float* a, Index a_row, const float* b, Index b_row, Index width) {
    Lanes sum[C][R] = {};
    for (Index w = 0; w < width; w += LANES) {
        Lanes shared[C];
        for (int c = 0; c < C; ++c) shared[c] = once(b + c * b_row + w);
        for (int r = 0; r < R; ++r) {
            const Lanes left = once(a + r * a_row + w);
            for (int c = 0; c < C; ++c) sum[c][r] += left * shared[c];
        }
    }
    for (int c = 0; c < C; ++c)
        for (int r = 0; r < R; ++r) sums[c * LANES + r] = sum[c][r];
}

// out[columns, rows] += sign b[columns, width] a[rows, width]^T, where rows and width are the padded axes:
// a has rows of zeros to the next whole vector.
inline void contract(float* out, Index out_row, const float* a, Index a_row, const float* b, Index b_row, Index rows,
                     Index columns, Index width, float sign = 1.0f) {
    Lanes sums[2 * LANES];
    for (Index r = 0; r < rows; r += LANES, a += LANES * a_row, out += LANES) {
        Index c = 0;
        for (; c + 2 <= columns; c += 2) {
            contract_tile<4, 2>(sums, a, a_row, b + c * b_row, b_row, width);
            contract_tile<4, 2>(sums + 4, a + 4 * a_row, a_row, b + c * b_row, b_row, width);
            lanes(out + c * out_row) += sign * totals(sums);
            lanes(out + (c + 1) * out_row) += sign * totals(sums + LANES);
        }
        if (c < columns) {
            contract_tile<8, 1>(sums, a, a_row, b + c * b_row, b_row, width);
            lanes(out + c * out_row) += sign * totals(sums);
        }
    }
}

// Zeroed floats that start on a vector's boundary.
class Buffer {
  public:
    explicit Buffer(Index size = 0) : data_(size ? new (ALIGNMENT) float[size] : nullptr), size_(size) { clear(); }
    operator float*() { return data_.get(); }
    void clear() { std::fill_n(data_.get(), size_, 0.0f); }

  private:
    static constexpr std::align_val_t ALIGNMENT{64};
    struct Free {
        void operator()(float* data) const { ::operator delete[](data, ALIGNMENT); }
    };
    std::unique_ptr<float[], Free> data_;
    Index size_;
};

// Contexts side by side, and what is wanted of them.
struct Block {
    Index width;                 // padded; what fills it up has weight 0
    Index group;                 // contexts whose targets lie together
    const std::int32_t* tokens;  // [width, S]
    const float* weights;        // [width]
    const std::int32_t* labels;  // [width], or null and then
    const float* targets;        // [width / group, A, group]
};

// Sums over contexts, by weight. The weights are summed too: all right is then exactly 1.
struct Score {
    float slack = 0.0f;  // the loss of a label is -log(p + slack): what is hopeless is given up for what can be held
    double loss = 0.0, right = 0.0, all = 0.0;

    bool all_right() const { return right == all; }
};

// From the last residual stream to the loss, and back.
class Readout {
  public:
    Readout(Index answers, Index d, Index row)
        : answers_(answers),
          d_(d),
          row_(row),
          slopes_(padded(answers) * row),
          factors_(row),
          scaled_(d * row) {}

    // stream and its gradient: [d, row]; unembed and its gradient: [d, padded answers]
    void operator()(const Block& block, const float* stream, const float* unembed, float* to_stream, float* to_unembed,
                    Score& score) {
        const Index stride = padded(answers_);
        compare(block, stream, unembed, score);
        multiply(to_stream, row_, {unembed, stride, 1}, slopes_, row_, d_, answers_, block.width);
        for (Index i = 0; i < d_; ++i)
            for (Index c = 0; c < block.width; c += LANES) {
                lanes(to_stream + i * row_ + c) *= lanes(factors_ + c);
                lanes(scaled_ + i * row_ + c) = lanes(stream + i * row_ + c) * lanes(factors_ + c);
            }
        contract(to_unembed, stride, slopes_, row_, scaled_, row_, answers_, d_, block.width);
    }

    // The gradient of the loss by the logits, [A, row], for a kernel that goes on by itself.
    const float* to_logits(const Block& block, const float* stream, const float* unembed, Score& score) {
        compare(block, stream, unembed, score);
        for (Index k = 0; k < answers_; ++k)
            for (Index c = 0; c < block.width; c += LANES) lanes(slopes_ + k * row_ + c) *= lanes(factors_ + c);
        return slopes_;
    }

  private:
    void compare(const Block& block, const float* stream, const float* unembed, Score& score) {
        multiply(slopes_, row_, {unembed, 1, padded(answers_)}, stream, row_, answers_, d_, block.width);
        for (Index c = 0; c < block.width; c += LANES)
            block.labels ? labelled(block, c, score) : distributed(block, c, score);
    }

    // Each turns eight columns of logits into the gradient of the loss by them, but for a factor.
    void labelled(const Block& block, Index first, Score& score) {
        const Index answers = answers_, row = row_;
        const std::int32_t* labels = block.labels + first;
        const Lanes weight = lanes(block.weights + first);
        float* column = slopes_ + first;
        Lanes wanted, sum{};
        for (int lane = 0; lane < LANES; ++lane) wanted[lane] = column[labels[lane] * row + lane];
        const Lanes best = largest(column);
        Bits ties{};
        for (Index k = 0; k < answers; ++k) {
            Lanes& logit = lanes(column + k * row);
            ties -= logit == best;
            logit = exponential(logit - best);
            sum += logit;
        }
        for (int lane = 0; lane < LANES; ++lane) column[labels[lane] * row + lane] -= sum[lane];
        const Lanes likely = exponential(wanted - best);  // p of the label, times the sum
        const Lanes held = likely / (likely + score.slack * sum);  // 1 without slack
        lanes(factors_ + first) = weight * held / sum;
        score.loss += total(weight * (best + logarithm(sum) - wanted));
        score.right += total(where((wanted == best) & (ties == 1), weight));
        score.all += total(weight);
    }

    void distributed(const Block& block, Index first, Score& score) {
        const Index answers = answers_, row = row_, group = block.group;
        const Lanes weight = lanes(block.weights + first);
        const float* targets = block.targets + first / group * group * answers + first % group;
        float* column = slopes_ + first;
        const Lanes best = largest(column);
        Lanes sum{}, expected{}, right{};
        Bits ties{};
        for (Index k = 0; k < answers; ++k) {
            Lanes& logit = lanes(column + k * row);
            const Lanes target = lanes(targets + k * group);
            ties -= logit == best;
            right += where(logit == best, target);
            expected += target * logit;
            logit = exponential(logit - best);
            sum += logit;
        }
        for (Index k = 0; k < answers; ++k) lanes(column + k * row) -= sum * lanes(targets + k * group);
        lanes(factors_ + first) = weight / sum;
        score.loss += total(weight * (best + logarithm(sum) - expected));
        score.right += total(where(ties == 1, weight * right));
        score.all += total(weight);
    }

    Lanes largest(const float* column) const {
        const Index answers = answers_, row = row_;
        Lanes best = lanes(column);
        for (Index k = 1; k < answers; ++k) best = larger(best, lanes(column + k * row));
        return best;
    }

    Index answers_, d_, row_;
    Buffer slopes_, factors_, scaled_;
};

// All facts of a replica, for the exact gradient, in groups of contexts side by side.
struct Facts {
    const std::int32_t* inputs;  // [T, S], in the order that batches refer to
    Index groups, width;
    const std::int32_t* tokens;  // [groups, width, S]; null when group t holds the pairs that end in t, by first token
    const float* weights;        // [groups, width]
    const std::int32_t* labels;  // [groups, width], or null and then
    const float* targets;        // [groups, A, width]

    Block block(Index group, Index count, Index answers, Index length) const {
        const Index first = group * width;
        return {count * width,
                width,
                tokens ? tokens + first * length : nullptr,
                weights + first,
                labels ? labels + first : nullptr,
                targets ? targets + first * answers : nullptr};
    }
};

// What to do with them.
struct Run {
    Index steps, taken;  // taken: Adam steps before these
    const float* rates;  // [steps]
    float beta1, beta2, epsilon;
    Index block, batch;     // contexts side by side, and in a batch
    const Index* contexts;  // [steps, batch], or null for the exact gradient
    const Index* labels;    // [steps, batch]
    float* loss;            // [steps]
    float* accuracy;        // [steps]
    const float* slack;     // [steps], or null for none
    std::int32_t finishes;  // a step that finds everything right takes no update, and is the last
};

// The rule of torch.optim.Adam.
inline void adam(Index size, float* weights, const float* gradient, float* first, float* second, const Run& run,
                 Index step) {
    const double taken = double(run.taken + step + 1);
    const float rate = float(run.rates[step] / (1.0 - std::pow(double(run.beta1), taken)));
    const float correction = float(1.0 / std::sqrt(1.0 - std::pow(double(run.beta2), taken)));
    const float fresh1 = 1.0f - run.beta1, beta2 = run.beta2, fresh2 = 1.0f - run.beta2, epsilon = run.epsilon;
    for (Index i = 0; i < size; ++i) {
        const float g = gradient[i];
        const float m = first[i] + fresh1 * (g - first[i]);
        const float v = beta2 * second[i] + fresh2 * g * g;
        first[i] = m;
        second[i] = v;
        weights[i] -= rate * m / (std::sqrt(v) * correction + epsilon);
    }
}

// A sampled batch, sorted by last token so that neighbours read the same tables.
class Batch {
  public:
    Batch(Index vocab, Index length, Index size)
        : length_(length),
          size_(size),
          tokens_(padded(size) * length),
          labels_(padded(size)),
          start_(vocab + 1),
          weights_(padded(size)) {
        for (Index i = 0; i < size; ++i) weights_[i] = 1.0f / float(size);
    }

    void draw(const std::int32_t* inputs, const Index* contexts, const Index* labels) {
        auto last = [&](Index i) { return inputs[contexts[i] * length_ + length_ - 1]; };
        std::fill(start_.begin(), start_.end(), 0);
        for (Index i = 0; i < size_; ++i) ++start_[last(i) + 1];
        for (std::size_t token = 1; token < start_.size(); ++token) start_[token] += start_[token - 1];
        for (Index i = 0; i < size_; ++i) {
            const Index place = start_[last(i)]++;
            std::copy_n(inputs + contexts[i] * length_, length_, &tokens_[place * length_]);
            labels_[place] = std::int32_t(labels[i]);
        }
    }

    Block block(Index first, Index most) {
        const Index width = padded(std::min(most, size_ - first));
        return {width, width, &tokens_[first * length_], weights_ + first, &labels_[first], nullptr};
    }

  private:
    Index length_, size_;
    std::vector<std::int32_t> tokens_, labels_;
    std::vector<Index> start_;
    Buffer weights_;
};

// A Model is made from (Shape, Facts, Run), where Shape has `vocab` and `length`. It has `size()`, the
// number of its parameters with padding; `begin(weights, gradient)`; then `block(block, score)` for
// some contexts or `exact(facts, score)` for all facts; and `finish()`, by which time it has added
// the gradient to zeros.
template <class Model, class Shape>
class Trainer {
  public:
    Trainer(const Shape& shape, const Facts& facts, const Run& run)
        : facts_(facts),
          run_(run),
          model_(shape, facts, run),
          batch_(shape.vocab, shape.length, run.contexts ? run.batch : 0) {}

    Score gradient(Index step, const float* weights, float* gradient) {
        Score score;
        if (run_.slack) score.slack = run_.slack[step];
        std::fill_n(gradient, model_.size(), 0.0f);
        model_.begin(weights, gradient);
        if (run_.contexts) {
            batch_.draw(facts_.inputs, run_.contexts + step * run_.batch, run_.labels + step * run_.batch);
            for (Index first = 0; first < run_.batch; first += run_.block)
                model_.block(batch_.block(first, run_.block), score);
        } else {
            model_.exact(facts_, score);
        }
        model_.finish();
        run_.loss[step] = float(score.loss);
        run_.accuracy[step] = float(score.right / score.all);
        return score;
    }

    // The number of steps taken.
    Index advance(float* weights, float* first, float* second) {
        Buffer slopes(model_.size());
        for (Index step = 0; step < run_.steps; ++step) {
            const Score score = gradient(step, weights, slopes);
            if (run_.finishes && score.all_right()) return step;
            adam(model_.size(), weights, slopes, first, second, run_, step);
        }
        return run_.steps;
    }

  private:
    const Facts& facts_;
    const Run& run_;
    Model model_;
    Batch batch_;
};

}  // namespace membench

// What Python calls. `structure_sizes` comes first: a structure that Python lays out otherwise would be misread.
#define MEMBENCH_KERNEL(Model, Shape)                                                                    \
    extern "C" void structure_sizes(membench::Index* out) {                                              \
        const std::size_t sizes[] = {sizeof(Shape), sizeof(membench::Facts), sizeof(membench::Run)};     \
        std::copy_n(sizes, 3, out);                                                                      \
    }                                                                                                    \
    extern "C" membench::Index advance(const Shape* shape, const membench::Facts* facts,                 \
                                       const membench::Run* run, float* weights, float* first,           \
                                       float* second) {                                                  \
        return membench::Trainer<Model, Shape>(*shape, *facts, *run).advance(weights, first, second);    \
    }                                                                                                    \
    extern "C" void gradient(const Shape* shape, const membench::Facts* facts, const membench::Run* run, \
                             const float* weights, float* out) {                                         \
        membench::Trainer<Model, Shape>(*shape, *facts, *run).gradient(0, weights, out);                 \
    }
