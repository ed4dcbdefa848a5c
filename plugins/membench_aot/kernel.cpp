// Training of attention-only transformers: exact gradients, and Adam.
//
// A head's query and key maps only ever act together, and so do its value and output maps, so each
// pair is multiplied first. What a token brings at a position is then computed once, into tables,
// and contexts only look it up; their gradients are added up in the same tables and pushed back to
// the weights once in a step. Scores are taken relative to that of the last position, so that the
// softmax over two positions is one sigmoid.
//
// Several layers are for two positions. The first position sees nothing but itself, so that whatever it holds is a
// table of tokens at every layer; above the first layer, only the last position is computed for each context.
//
// H, P and n are the heads, the dimension that they read and write, and the tokens; H and n padded.
#include <numeric>

#include "kernel.hpp"

using namespace membench;

namespace {

struct Shape {
    Index vocab, length, answers, d, inner, d_h, heads, layers;
    std::int32_t compressed;      // the heads read and write through a shared projection,
    std::int32_t one_projection;  // which all layers share
    std::int32_t skip_position;   // the residual stream holds the position; never when compressed
    float factor;                 // of the scores
};

template <class Float>
struct Layer {
    Float *query, *key, *value, *output;     // [d_h, P, H]
    Float *compress = {}, *decompress = {};  // [d, padded P]
};

// The parameters in one array, in the order of the Python side.
template <class Float>
struct Parameters {
    Float* word;      // [d, n]
    Float* position;  // [S, padded P]
    std::vector<Layer<Float>> layers;
    Float* unembed;  // [d, padded answers]
    Index size = 0;

    Parameters(const Shape& s, Float* base) {
        auto next = [&](Index rows, Index columns) {
            Float* here = base + size;
            size += rows * padded(columns);
            return here;
        };
        word = next(s.d, s.vocab);
        position = next(s.length, s.inner);
        for (Index k = 0; k < s.layers; ++k) {
            Layer<Float> layer;
            for (Float** map : {&layer.query, &layer.key, &layer.value, &layer.output})
                *map = next(s.d_h * s.inner, s.heads);
            if (s.compressed)
                for (auto map : {&Layer<Float>::compress, &Layer<Float>::decompress})
                    layer.*map = k > 0 && s.one_projection ? layers[0].*map : next(s.d, s.inner);
            layers.push_back(layer);
        }
        unembed = next(s.d, s.answers);
    }
};

template <int R, int C>
inline void fold_tile(float* out, Index out_row, Index out_column, View a, View b, Index inner, float factor) {
    Lanes sum[R][C] = {};
    for (Index m = 0; m < inner; ++m) {
        Lanes right[C];
        for (int c = 0; c < C; ++c) right[c] = once(b.data + m * b.row + c * b.column);
        for (int r = 0; r < R; ++r) {
            const Lanes left = once(a.data + r * a.row + m * a.column);
            for (int c = 0; c < C; ++c) sum[r][c] += left * right[c];
        }
    }
    for (int r = 0; r < R; ++r)
        for (int c = 0; c < C; ++c) lanes(out + r * out_row + c * out_column) = sum[r][c] * factor;
}

// out[rows, columns, H] = factor a[rows, inner, H] b[inner, columns, H], for each head its own product.
void fold(float* out, View a, View b, Index rows, Index columns, Index inner, Index H, float factor) {
    for (Index h = 0; h < H; h += LANES, out += LANES, a.data += LANES, b.data += LANES)
        for (Index r = 0; r < rows; r += 2)
            for (Index c = 0; c < columns; c += 4) {
                float* corner = out + (r * columns + c) * H;
                if (r + 2 <= rows && c + 4 <= columns) {
                    fold_tile<2, 4>(corner, columns * H, H, a.below(r), b.right(c), inner, factor);
                    continue;
                }
                for (Index i = 0; i < std::min<Index>(2, rows - r); ++i)
                    for (Index j = 0; j < std::min<Index>(4, columns - c); ++j)
                        fold_tile<1, 1>(corner + (i * columns + j) * H, 0, 0, a.below(r + i), b.right(c + j), inner,
                                        factor);
            }
}

// What the heads of a layer do, as products of their maps. `to_x` is the gradient of the loss by `x`.
struct Maps {
    const Index P, d_h, H, cells;  // cells: of an inner vector for each head
    const float factor;
    Buffer score, to_score;    // [P, P, H]: from the last input to what is looked for
    Buffer update, to_update;  // [P, P, H]: from an input to what is written

    explicit Maps(const Shape& s)
        : P(s.inner),
          d_h(s.d_h),
          H(padded(s.heads)),
          cells(P * H),
          factor(s.factor),
          score(P * cells),
          to_score(P * cells),
          update(P * cells),
          to_update(P * cells) {}

    void fill(const Layer<const float>& w) {
        fold(score, {w.query, H, cells}, {w.key, cells, H}, P, P, d_h, H, factor);
        fold(update, {w.value, H, cells}, {w.output, cells, H}, P, P, d_h, H, 1.0f);
    }

    void drain(const Layer<const float>& w, const Layer<float>& g) {
        fold(g.query, {w.key, cells, H}, {to_score, H, cells}, d_h, P, P, H, factor);
        fold(g.key, {w.query, cells, H}, {to_score, cells, H}, d_h, P, P, H, factor);
        fold(g.value, {w.output, cells, H}, {to_update, H, cells}, d_h, P, P, H, 1.0f);
        fold(g.output, {w.value, cells, H}, {to_update, cells, H}, d_h, P, P, H, 1.0f);
    }
};

// What each token brings at each position to the first layer.
struct Tables {
    const Shape s;
    const Index n, H, P, cells, end;  // cells: of an inner vector for each head; end: the last position
    Parameters<const float> w;
    Parameters<float> g;
    Maps maps;
    Buffer inputs, to_inputs;    // [S, P, n]: what the heads read; padded by a vector's rows
    Buffer queries, to_queries;  // [n, P, H]: what the heads look for when a token is last
    Buffer updates, to_updates;  // [S, n, P, H]: what they write when they attend to it
    Buffer own, to_own;          // [P, n]: what all write when a token is last and they attend to it, and the skip
    Buffer alone, to_alone;      // [P, n]: the same when a token is first; for deeper layers only
    Buffer to_skip;              // [d, n]: of the residual stream, where `own` and `alone` cannot hold it

    explicit Tables(const Shape& shape)
        : s(shape),
          n(padded(s.vocab)),
          H(padded(s.heads)),
          P(s.inner),
          cells(P * H),
          end(s.length - 1),
          w(s, nullptr),
          g(s, nullptr),
          maps(s),
          inputs(s.length * P * n),
          to_inputs((s.length * P + LANES) * n),
          queries(n * cells),
          to_queries(n * cells),
          updates(s.length * n * cells),
          to_updates(s.length * n * cells),
          own(P * n),
          to_own(P * n),
          alone(deep() ? padded(P) * n : 0),
          to_alone(deep() ? P * n : 0),
          to_skip(s.compressed ? s.d * n : 0) {}

    float* input(Index at) { return inputs + at * P * n; }
    float* to_input(Index at) { return to_inputs + at * P * n; }
    float* query(Index token) { return queries + token * cells; }
    float* to_query(Index token) { return to_queries + token * cells; }
    float* update(Index at, Index token) { return updates + (at * n + token) * cells; }
    float* to_update(Index at, Index token) { return to_updates + (at * n + token) * cells; }

    bool deep() const { return s.layers > 1; }

    // What the residual stream holds of a token, where the heads write to it directly.
    float skip(Index at, Index i, Index token) const {
        if (s.compressed) return 0.0f;
        return w.word[i * n + token] + (s.skip_position ? w.position[at * padded(P) + i] : 0.0f);
    }

    void fill(const float* weights, float* gradient) {
        w = Parameters<const float>(s, weights);
        g = Parameters<float>(s, gradient);
        for (Buffer* buffer : {&to_inputs, &to_queries, &to_updates, &to_own, &to_skip}) buffer->clear();
        maps.fill(w.layers[0]);
        for (Index at = 0; at < s.length; ++at) {
            read(at);
            multiply(update(at, 0), cells, {input(at), 1, n}, maps.update, cells, s.vocab, P, cells);
        }
        multiply(queries, cells, {input(end), 1, n}, maps.score, cells, s.vocab, P, cells);
        attend_to_itself(end, own);
        if (deep()) attend_to_itself(0, alone);
    }

    void drain() {
        attend_to_itself_back(end, to_own);
        if (deep()) attend_to_itself_back(0, to_alone);
        for (Index at = 0; at < s.length; ++at) {
            multiply(maps.to_update, cells, {input(at), n, 1}, to_update(at, 0), cells, P, s.vocab, cells, at > 0);
            contract(to_input(at), n, to_update(at, 0), cells, maps.update, cells, s.vocab, P, cells);
        }
        multiply(maps.to_score, cells, {input(end), n, 1}, to_queries, cells, P, s.vocab, cells);
        contract(to_input(end), n, to_queries, cells, maps.score, cells, s.vocab, P, cells);
        maps.drain(w.layers[0], g.layers[0]);
        drain_inputs();
    }

  private:
    void attend_to_itself(Index at, float* out) {
        for (Index t = 0; t < s.vocab; ++t)
            for (Index i = 0; i < P; ++i) {
                Lanes sum{};
                for (Index h = 0; h < H; h += LANES) sum += lanes(update(at, t) + i * H + h);
                out[i * n + t] = total(sum) + skip(at, i, t);
            }
    }

    void attend_to_itself_back(Index at, const float* to_out) {
        for (Index t = 0; t < s.vocab; ++t)
            for (Index i = 0; i < P; ++i)
                for (Index h = 0; h < H; h += LANES) lanes(to_update(at, t) + i * H + h) += to_out[i * n + t];
    }

    void read(Index at) {
        float* x = input(at);
        if (s.compressed)
            multiply(x, n, {w.layers[0].compress, 1, padded(P)}, w.word, n, P, s.d, n);
        else
            std::copy_n(w.word, P * n, x);
        for (Index i = 0; i < P; ++i)
            for (Index t = 0; t < s.vocab; ++t) x[i * n + t] += w.position[at * padded(P) + i];
    }

    void drain_inputs() {
        for (Index at = 0; at < s.length; ++at)
            for (Index i = 0; i < P; ++i) {
                float& to_position = g.position[at * padded(P) + i];  // where deeper layers have added theirs
                to_position += row_sum(to_input(at) + i * n, n);
                if (at == end && s.skip_position) to_position += row_sum(to_own + i * n, n);
                if (at == 0 && s.skip_position && deep()) to_position += row_sum(to_alone + i * n, n);
            }
        for (Index at = 1; at < s.length; ++at) add(to_inputs, to_input(at), P * n);
        if (s.compressed) {
            for (Index k = P * n; k < (P + LANES) * n; ++k) to_inputs[k] = 0.0f;
            multiply(g.word, n, {w.layers[0].compress, padded(P), 1}, to_inputs, n, s.d, P, n);
            contract(g.layers[0].compress, padded(P), to_inputs, n, w.word, n, P, s.d, n);
            add(g.word, to_skip, s.d * n);
        } else {
            add(g.word, to_inputs, P * n);
            add(g.word, to_own, P * n);
            if (deep()) add(g.word, to_alone, P * n);
        }
    }
};

// Attention in any contexts, one after the other: heads side by side.
class ByContext {
  public:
    ByContext(Tables& tables, Index row)
        : t_(tables),
          row_(row),
          weights_(row * t_.end * t_.H),
          slopes_(row * t_.end * t_.H),
          sums_(t_.P * LANES * LANES),
          to_inputs_(t_.s.length * t_.n * t_.P * LANES) {}

    void clear() { to_inputs_.clear(); }

    // read: [P, row], what the heads and the skip leave at the last position
    void forward(const Block& block, float* read) {
        for (Index c = 0; c < block.width; ++c)
            for (Index i = 0; i < t_.P; ++i) read[i * row_ + c] = t_.own[i * t_.n + last(block, c)];
        by_heads([&](auto size, Index h) { compare<size()>(block, h); });
        softmax(block.width);
        by_heads([&](auto size, Index h) { collect<size()>(block, h, read); });
    }

    void backward(const Block& block, const float* to_read) {
        for (Index c = 0; c < block.width; ++c)
            for (Index i = 0; i < t_.P; ++i) t_.to_own[i * t_.n + last(block, c)] += to_read[i * row_ + c];
        by_heads([&](auto size, Index h) { collect_back<size()>(block, h, to_read); });
        softmax_back(block.width);
        by_heads([&](auto size, Index h) { compare_back<size()>(block, h); });
    }

    void drain() {
        for (Index at = 0; at <= t_.end; ++at)
            for (Index t = 0; t < t_.s.vocab; ++t)
                for (Index i = 0; i < t_.P; ++i)
                    t_.to_input(at)[i * t_.n + t] += total(lanes(to_input(at, t) + i * LANES));
    }

    Index last(const Block& block, Index c) const { return block.tokens[c * t_.s.length + t_.end]; }

  private:
    float* weight(Index c, Index at) { return weights_ + (c * t_.end + at) * t_.H; }
    float* slope(Index c, Index at) { return slopes_ + (c * t_.end + at) * t_.H; }
    float* to_input(Index at, Index token) { return to_inputs_ + (at * t_.n + token) * t_.P * LANES; }  // by heads

    // Up to four vectors of heads at a time, so that what belongs to them stays in registers.
    template <class Part>
    void by_heads(Part part) {
        Index h = 0;
        for (; h + 4 * LANES <= t_.H; h += 4 * LANES) part(std::integral_constant<int, 4>{}, h);
        const Index left = (t_.H - h) / LANES;
        if (left == 3) part(std::integral_constant<int, 3>{}, h);
        if (left == 2) part(std::integral_constant<int, 2>{}, h);
        if (left == 1) part(std::integral_constant<int, 1>{}, h);
    }

    template <int B>
    void compare(const Block& block, Index h) {
        const Index P = t_.P, H = t_.H, n = t_.n;
        for (Index c = 0; c < block.width; ++c) {
            const std::int32_t* tokens = block.tokens + c * t_.s.length;
            const float* query = t_.query(tokens[t_.end]) + h;
            const float* end = t_.input(t_.end) + tokens[t_.end];
            for (Index at = 0; at < t_.end; ++at) {
                const float* x = t_.input(at) + tokens[at];
                Lanes score[B] = {};
                for (Index i = 0; i < P; ++i)
                    for (int b = 0; b < B; ++b) score[b] += (x[i * n] - end[i * n]) * lanes(query + i * H + b * LANES);
                for (int b = 0; b < B; ++b) lanes(weight(c, at) + h + b * LANES) = score[b];
            }
        }
    }

    void softmax(Index width) {
        const Index H = t_.H, end = t_.end;
        if (end == 1) return sigmoid(weights_, width * H);
        for (Index c = 0; c < width; ++c)
            for (Index h = 0; h < H; h += LANES) {
                float* a = weight(c, 0) + h;
                Lanes best{};
                for (Index at = 0; at < end; ++at) best = larger(best, lanes(a + at * H));
                Lanes sum = exponential(-best);
                for (Index at = 0; at < end; ++at) {
                    lanes(a + at * H) = exponential(lanes(a + at * H) - best);
                    sum += lanes(a + at * H);
                }
                for (Index at = 0; at < end; ++at) lanes(a + at * H) /= sum;
            }
    }

    template <int B>
    void collect(const Block& block, Index h, float* read) {
        const Index P = t_.P, H = t_.H, eight = LANES * LANES;
        for (Index c = 0; c < block.width && t_.end > 0; ++c) {
            const std::int32_t* tokens = block.tokens + c * t_.s.length;
            const float* end = t_.update(t_.end, tokens[t_.end]) + h;
            float* sums = sums_ + c % LANES * LANES;
            for (Index at = 0; at < t_.end; ++at) {
                const float* update = t_.update(at, tokens[at]) + h;
                Lanes a[B];
                for (int b = 0; b < B; ++b) a[b] = lanes(weight(c, at) + h + b * LANES);
                for (Index i = 0; i < P; ++i) {
                    Lanes sum = at ? lanes(sums + i * eight) : Lanes{};
                    for (int b = 0; b < B; ++b)
                        sum += a[b] * (lanes(update + i * H + b * LANES) - lanes(end + i * H + b * LANES));
                    lanes(sums + i * eight) = sum;
                }
            }
            if ((c + 1) % LANES == 0)
                for (Index i = 0; i < P; ++i)
                    lanes(read + i * row_ + c + 1 - LANES) += totals(&lanes(sums_ + i * eight));
        }
    }

    template <int B>
    void collect_back(const Block& block, Index h, const float* to_read) {
        const Index P = t_.P, H = t_.H, row = row_;
        for (Index c = 0; c < block.width; ++c) {
            const std::int32_t* tokens = block.tokens + c * t_.s.length;
            const float* end = t_.update(t_.end, tokens[t_.end]) + h;
            float* to_end = t_.to_update(t_.end, tokens[t_.end]) + h;
            for (Index at = 0; at < t_.end; ++at) {
                const float* update = t_.update(at, tokens[at]) + h;
                float* to_update = t_.to_update(at, tokens[at]) + h;
                Lanes a[B], sum[B] = {};
                for (int b = 0; b < B; ++b) a[b] = lanes(weight(c, at) + h + b * LANES);
                for (Index i = 0; i < P; ++i) {
                    const float pull = to_read[i * row + c];
                    for (int b = 0; b < B; ++b) {
                        const Index k = i * H + b * LANES;
                        sum[b] += pull * (lanes(update + k) - lanes(end + k));
                        lanes(to_update + k) += pull * a[b];
                        lanes(to_end + k) -= pull * a[b];
                    }
                }
                for (int b = 0; b < B; ++b) lanes(slope(c, at) + h + b * LANES) = sum[b];
            }
        }
    }

    void softmax_back(Index width) {
        const Index H = t_.H, end = t_.end;
        for (Index c = 0; c < width; ++c)
            for (Index h = 0; h < H; h += LANES) {
                const float* a = weight(c, 0) + h;
                float* z = slope(c, 0) + h;
                Lanes mean{};
                for (Index at = 0; at < end; ++at) mean += lanes(a + at * H) * lanes(z + at * H);
                for (Index at = 0; at < end; ++at) lanes(z + at * H) = lanes(a + at * H) * (lanes(z + at * H) - mean);
            }
    }

    template <int B>
    void compare_back(const Block& block, Index h) {
        const Index P = t_.P, H = t_.H, n = t_.n;
        for (Index c = 0; c < block.width; ++c) {
            const std::int32_t* tokens = block.tokens + c * t_.s.length;
            const float* query = t_.query(tokens[t_.end]) + h;
            float* to_query = t_.to_query(tokens[t_.end]) + h;
            const float* end = t_.input(t_.end) + tokens[t_.end];
            float* to_end = to_input(t_.end, tokens[t_.end]);
            for (Index at = 0; at < t_.end; ++at) {
                const float* x = t_.input(at) + tokens[at];
                float* to_x = to_input(at, tokens[at]);
                Lanes z[B];
                for (int b = 0; b < B; ++b) z[b] = lanes(slope(c, at) + h + b * LANES);
                for (Index i = 0; i < P; ++i) {
                    Lanes sum{};
                    for (int b = 0; b < B; ++b) {
                        lanes(to_query + i * H + b * LANES) += z[b] * (x[i * n] - end[i * n]);
                        sum += z[b] * lanes(query + i * H + b * LANES);
                    }
                    lanes(to_x + i * LANES) += sum;
                    lanes(to_end + i * LANES) -= sum;
                }
            }
        }
    }

    Tables& t_;
    const Index row_;
    Buffer weights_, slopes_;  // [contexts, S - 1, H]
    Buffer sums_;              // [P, 8 contexts, 8 heads]
    Buffer to_inputs_;         // [S, n, P, 8 heads]
};

// Attention in all pairs of tokens: first tokens side by side, for a few last tokens at a time.
// Nothing is looked up then, heads need no padding, and all but two loops are matrix products.
class ByGrid {
  public:
    ByGrid(Tables& tables, Index row)
        : t_(tables),
          heads_(t_.s.heads),
          row_(row),
          updates_(t_.n * t_.P * heads_),
          to_updates_(t_.n * t_.P * heads_),
          differences_(AT_ONCE * t_.P * t_.n),
          weights_(AT_ONCE * t_.H * t_.n),
          slopes_(AT_ONCE * t_.H * t_.n),
          changes_(t_.P * t_.n) {}

    static constexpr Index AT_ONCE = 4;

    void fill() {
        transpose([](float& here, float& there) { here = there; }, updates_, t_.updates);
        to_updates_.clear();
    }
    void drain() {
        transpose([](float& here, float& there) { there = here; }, to_updates_, t_.to_updates);
    }

    // read: [P, row], with the contexts that end in token + q from column q n on
    template <int Q>
    void forward(Index token, float* read) {
        const Index P = t_.P, H = t_.H, n = t_.n;
        for (int q = 0; q < Q; ++q) {
            float *difference = differences_ + q * P * n, *a = weights_ + q * H * n;
            for (Index i = 0; i < P; ++i)
                for (Index v = 0; v < n; v += LANES)
                    lanes(difference + i * n + v) = lanes(t_.input(0) + i * n + v) - t_.input(1)[i * n + token + q];
            multiply(a, n, {t_.query(token + q), 1, H}, difference, n, heads_, P, n);
            sigmoid(a, heads_ * n);
            multiply(read + q * n, row_, {t_.update(1, token + q), H, 1}, a, n, P, heads_, n);
        }
        for (Index v = 0; v < n; v += LANES) {
            Index i = 0;
            for (; i + 2 <= P; i += 2) collect<Q, 2>(token, v, i, read);
            if (i < P) collect<Q, 1>(token, v, i, read);
        }
    }

    template <int Q>
    void backward(Index token, const float* to_read) {
        const Index P = t_.P, H = t_.H, n = t_.n;
        for (int q = 0; q < Q; ++q)
            multiply(slopes_ + q * H * n, n, {t_.update(1, token + q), 1, H}, to_read + q * n, row_, heads_, P, n);
        for (Index v = 0; v < n; v += LANES)
            for (Index h = 0; h < heads_; ++h) collect_back<Q>(v, h, to_read);
        for (int q = 0; q < Q; ++q) {
            const float *a = weights_ + q * H * n, *z = slopes_ + q * H * n;
            contract(t_.to_update(1, token + q), H, a, n, to_read + q * n, row_, heads_, P, n, -1.0f);
            contract(t_.to_query(token + q), H, z, n, differences_ + q * P * n, n, heads_, P, n);
            multiply(changes_, n, {t_.query(token + q), H, 1}, z, n, P, heads_, n);
            add(t_.to_input(0), changes_, P * n);
            for (Index i = 0; i < P; ++i) {
                t_.to_input(1)[i * n + token + q] -= row_sum(changes_ + i * n, n);
                t_.to_own[i * n + token + q] += row_sum(to_read + i * row_ + q * n, n);
            }
        }
    }

  private:
    // Between updates by heads, [n, P, H], and by tokens, [n / 8, P, heads, 8].
    template <class Copy>
    void transpose(Copy copy, float* by_tokens, float* by_heads) {
        for (Index v = 0; v < t_.n; v += LANES)
            for (Index i = 0; i < t_.P; ++i)
                for (Index h = 0; h < heads_; ++h)
                    for (Index lane = 0; lane < LANES; ++lane)
                        copy(by_tokens[(v * t_.P + i * LANES) * heads_ + h * LANES + lane],
                             by_heads[(v + lane) * t_.cells + i * t_.H + h]);
    }

    template <int Q, int I>
    void collect(Index token, Index v, Index i, float* read) {
        const Index H = t_.H, n = t_.n, heads = heads_;
        const float *updates = updates_ + (v * t_.P + i * LANES) * heads, *a = weights_ + v;
        Lanes sum[I][Q];
        for (int k = 0; k < I; ++k)
            for (int q = 0; q < Q; ++q)
                sum[k][q] = t_.own[(i + k) * n + token + q] - lanes(read + (i + k) * row_ + q * n + v);
        for (Index h = 0; h < heads; ++h) {
            Lanes update[I];
            for (int k = 0; k < I; ++k) update[k] = once(updates + (k * heads + h) * LANES);
            for (int q = 0; q < Q; ++q) {
                const Lanes weight = once(a + (q * H + h) * n);
                for (int k = 0; k < I; ++k) sum[k][q] += weight * update[k];
            }
        }
        for (int k = 0; k < I; ++k)
            for (int q = 0; q < Q; ++q) lanes(read + (i + k) * row_ + q * n + v) = sum[k][q];
    }

    template <int Q>
    void collect_back(Index v, Index h, const float* to_read) {
        const Index P = t_.P, H = t_.H, n = t_.n, row = row_, next = heads_ * LANES;
        const float* updates = updates_ + v * P * heads_ + h * LANES;
        float* to_updates = to_updates_ + v * P * heads_ + h * LANES;
        const float* a = weights_ + h * n + v;
        float* slopes = slopes_ + h * n + v;
        Lanes weight[Q], slope[Q];
        for (int q = 0; q < Q; ++q) {
            weight[q] = lanes(a + q * H * n);
            slope[q] = -lanes(slopes + q * H * n);
        }
        for (Index i = 0; i < P; ++i) {
            const Lanes update = once(updates + i * next);
            Lanes to_update = lanes(to_updates + i * next);
            for (int q = 0; q < Q; ++q) {
                const Lanes pull = once(to_read + i * row + q * n + v);
                slope[q] += pull * update;
                to_update += pull * weight[q];
            }
            lanes(to_updates + i * next) = to_update;
        }
        for (int q = 0; q < Q; ++q) lanes(slopes + q * H * n) = slope[q] * weight[q] * (1.0f - weight[q]);
    }

    Tables& t_;
    const Index heads_, row_;
    Buffer updates_, to_updates_;  // [n / 8, P, heads, 8]: of first tokens
    Buffer differences_;           // [last tokens, P, n]: of inputs
    Buffer weights_, slopes_;      // [last tokens, H, n]
    Buffer changes_;               // [P, n]
};

// What the heads of a deeper layer read of the stream at one position and write to it, for tokens or contexts side by
// side. `now` is the stream, [d, row].
class Port {
  public:
    Port(const Tables& tables, Index layer, Index position, Index row)
        : read(padded(tables.P) * row),
          to_read(padded(tables.P) * row),
          written(padded(tables.P) * row),
          to_written(padded(tables.P) * row),
          t_(tables),
          layer_(layer),
          d_(t_.s.d),
          P_(t_.P),
          Pl_(padded(P_)),
          position_(position * Pl_),
          row_(row),
          stream_(t_.s.compressed ? d_ * row : 0) {}

    void open(const float* now, Index width) {
        if (t_.s.compressed) {
            copy(stream_, now, d_, width);
            multiply(read, row_, {w().compress, 1, Pl_}, now, row_, P_, d_, width);
        } else {
            copy(read, now, P_, width);
        }
        for (Index i = 0; i < P_ && !t_.s.skip_position; ++i)
            for (Index c = 0; c < width; c += LANES) lanes(read + i * row_ + c) += t_.w.position[position_ + i];
    }

    void close(float* now, Index width) {
        if (t_.s.compressed) return multiply(now, row_, {w().decompress, Pl_, 1}, written, row_, d_, P_, width, true);
        for (Index i = 0; i < P_; ++i) add(now + i * row_, written + i * row_, width);
    }

    void close_back(const float* to_now, Index width) {
        if (!t_.s.compressed) return copy(to_written, to_now, P_, width);
        multiply(to_written, row_, {w().decompress, 1, Pl_}, to_now, row_, P_, d_, width);
        contract(g().decompress, Pl_, written, row_, to_now, row_, P_, d_, width);
    }

    void open_back(float* to_now, Index width) {
        for (Index i = 0; i < P_ && !t_.s.skip_position; ++i)
            t_.g.position[position_ + i] += row_sum(to_read + i * row_, width);
        if (t_.s.compressed) {
            multiply(to_now, row_, {w().compress, Pl_, 1}, to_read, row_, d_, P_, width, true);
            contract(g().compress, Pl_, to_read, row_, stream_, row_, P_, d_, width);
        } else {
            for (Index i = 0; i < P_; ++i) add(to_now + i * row_, to_read + i * row_, width);
        }
    }

    Buffer read, to_read, written, to_written;  // [P, row], padded by rows of zeros

  private:
    const Layer<const float>& w() const { return t_.w.layers[layer_]; }
    const Layer<float>& g() const { return t_.g.layers[layer_]; }

    void copy(float* to, const float* from, Index rows, Index width) const {
        for (Index i = 0; i < rows; ++i) std::copy_n(from + i * row_, width, to + i * row_);
    }

    const Tables& t_;
    const Index layer_, d_, P_, Pl_, position_, row_;
    Buffer stream_;  // [d, row]: before the layer, where it is not what the heads read
};

// A layer above the first. With x what is read at the last position, and y what is read at the first less x, scores are
// linear in the products x_j y_i, and heads that attend to the first position move what they write by a matrix times y
// that is linear in their weights. So nearly all the work is in six matrix products, with contexts side by side.
class DeeperLayer {
  public:
    DeeperLayer(const Tables& tables, Index layer, Index row)
        : t_(tables),
          layer_(layer),
          heads_(t_.s.heads),
          H_(t_.H),
          P_(t_.P),
          Pl_(padded(P_)),
          row_(row),
          maps_(t_.s),
          own_(P_ * Pl_),
          to_own_(P_ * Pl_),
          first_(tables, layer, 0, t_.n),
          last_(tables, layer, 1, row),
          distance_(P_ * row),
          to_distance_(P_ * row),
          products_(P_ * P_ * row),
          moves_(P_ * P_ * row),
          slopes_(P_ * P_ * row),
          weights_(H_ * row),
          to_weights_(H_ * row) {}

    // now: [d, n], the stream of each token at the first position
    void fill(float* now) {
        maps_.fill(t_.w.layers[layer_]);
        for (Buffer* buffer : {&maps_.to_score, &maps_.to_update, &to_own_, &first_.to_read}) buffer->clear();
        for (Index j = 0; j < P_; ++j)
            for (Index i = 0; i < P_; ++i) own_[j * Pl_ + i] = row_sum(maps_.update + (j * P_ + i) * H_, H_);
        first_.open(now, t_.n);
        multiply(first_.written, t_.n, {own_, 1, Pl_}, first_.read, t_.n, P_, P_, t_.n);
        first_.close(now, t_.n);
    }

    void drain(float* to_now) {
        first_.close_back(to_now, t_.n);
        contract(to_own_, Pl_, first_.to_written, t_.n, first_.read, t_.n, P_, P_, t_.n);
        multiply(first_.to_read, t_.n, {own_, Pl_, 1}, first_.to_written, t_.n, P_, P_, t_.n, true);
        first_.open_back(to_now, t_.n);
        for (Index k = 0; k < P_ * P_; ++k)
            for (Index h = 0; h < H_; h += LANES) lanes(maps_.to_update + k * H_ + h) += to_own_[k / P_ * Pl_ + k % P_];
        maps_.drain(t_.w.layers[layer_], t_.g.layers[layer_]);
    }

    // now: [d, row], the stream of each context at the last position; first: its other token
    void forward(const Index* first, Index width, float* now) {
        last_.open(now, width);
        for (Index i = 0; i < P_; ++i)
            for (Index c = 0; c < width; ++c)
                distance_[i * row_ + c] = first_.read[i * t_.n + first[c]] - last_.read[i * row_ + c];
        outer(products_, last_.read, distance_, width);
        multiply(weights_, row_, {maps_.score, 1, H_}, products_, row_, heads_, P_ * P_, width);
        for (Index h = 0; h < heads_; ++h) sigmoid(weights_ + h * row_, width);
        multiply(moves_, row_, {maps_.update, H_, 1}, weights_, row_, P_ * P_, heads_, width);
        multiply(last_.written, row_, {own_, 1, Pl_}, last_.read, row_, P_, P_, width);
        add_left(last_.written, moves_, distance_, width);
        last_.close(now, width);
    }

    void backward(const Index* first, Index width, float* to_now) {
        last_.close_back(to_now, width);
        contract(to_own_, Pl_, last_.to_written, row_, last_.read, row_, P_, P_, width);
        multiply(last_.to_read, row_, {own_, Pl_, 1}, last_.to_written, row_, P_, P_, width);
        to_distance_.clear();
        add_right(to_distance_, moves_, last_.to_written, width);
        outer(slopes_, distance_, last_.to_written, width);
        contract(maps_.to_update, H_, weights_, row_, slopes_, row_, heads_, P_ * P_, width);
        multiply(to_weights_, row_, {maps_.update, 1, H_}, slopes_, row_, heads_, P_ * P_, width);
        for (Index h = 0; h < heads_; ++h)
            for (Index c = h * row_; c < h * row_ + width; c += LANES)
                lanes(to_weights_ + c) *= lanes(weights_ + c) * (1.0f - lanes(weights_ + c));
        contract(maps_.to_score, H_, to_weights_, row_, products_, row_, heads_, P_ * P_, width);
        multiply(slopes_, row_, {maps_.score, H_, 1}, to_weights_, row_, P_ * P_, heads_, width);
        add_right(last_.to_read, slopes_, distance_, width);
        add_left(to_distance_, slopes_, last_.read, width);
        for (Index i = 0; i < P_; ++i)
            for (Index c = 0; c < width; ++c) {
                const float pull = to_distance_[i * row_ + c];
                first_.to_read[i * t_.n + first[c]] += pull;
                last_.to_read[i * row_ + c] -= pull;
            }
        last_.open_back(to_now, width);
    }

  private:
    // out[j, i] = left[j] right[i], for each context
    void outer(float* out, const float* left, const float* right, Index width) const {
        for (Index j = 0; j < P_; ++j)
            for (Index i = 0; i < P_; ++i, out += row_)
                for (Index c = 0; c < width; c += LANES)
                    lanes(out + c) = lanes(left + j * row_ + c) * lanes(right + i * row_ + c);
    }

    // out[i] += sum over j of matrix[j, i] left[j]
    void add_left(float* out, const float* matrix, const float* left, Index width) const {
        for (Index j = 0; j < P_; ++j)
            for (Index i = 0; i < P_; ++i, matrix += row_)
                for (Index c = 0; c < width; c += LANES)
                    lanes(out + i * row_ + c) += lanes(matrix + c) * lanes(left + j * row_ + c);
    }

    // out[j] += sum over i of matrix[j, i] right[i]
    void add_right(float* out, const float* matrix, const float* right, Index width) const {
        for (Index j = 0; j < P_; ++j)
            for (Index i = 0; i < P_; ++i, matrix += row_)
                for (Index c = 0; c < width; c += LANES)
                    lanes(out + j * row_ + c) += lanes(matrix + c) * lanes(right + i * row_ + c);
    }

    const Tables& t_;
    const Index layer_, heads_, H_, P_, Pl_, row_;
    Maps maps_;
    Buffer own_, to_own_;            // [P, padded P]: what all heads write of what they attend to
    Port first_, last_;              // of tokens, and of contexts
    Buffer distance_, to_distance_;  // [P, row]: y
    Buffer products_, moves_;        // [P, P, row]: x_j y_i; and by how much of y_j the weights move coordinate i
    Buffer slopes_;                  // [P, P, row]: of the moves, then of the products
    Buffer weights_, to_weights_;    // [H, row]: of the first position
};

class AttentionOnly {
  public:
    AttentionOnly(const Shape& shape, const Facts& facts, const Run& run)
        : tables(shape),
          at_once(facts.tokens ? 0 : std::clamp<Index>(256 / tables.n, 1, 4)),
          row(std::max({run.block, facts.width, at_once * facts.width}) + LANES),
          contexts(tables, row),
          pairs(tables, row),
          readout(shape.answers, shape.d, row),
          read(padded(shape.inner) * row),
          to_read(shape.inner * row),
          stream(shape.compressed ? shape.d * row : 0),
          to_stream(shape.compressed ? shape.d * row : 0),
          firsts(tables.deep() ? shape.d * tables.n : 0),
          first(row),
          last(row) {
        for (Index layer = 1; layer < shape.layers; ++layer) deeper.emplace_back(tables, layer, row);
    }

    Index size() const { return tables.w.size; }

    void begin(const float* weights, float* gradient) {
        tables.fill(weights, gradient);
        contexts.clear();
        if (tables.deep()) rise();
    }

    void block(const Block& block, Score& score) {
        for (Index c = 0; c < block.width; ++c) {
            first[c] = block.tokens[c * tables.s.length];
            last[c] = contexts.last(block, c);
        }
        contexts.forward(block, read);
        answer(block, score);
        contexts.backward(block, to_read);
    }

    void exact(const Facts& facts, Score& score) {
        if (facts.tokens) {
            for (Index group = 0; group < facts.groups; ++group) block(part(facts, group, 1), score);
            return;
        }
        pairs.fill();
        Index token = 0;
        if (at_once == 4)
            for (; token + 4 <= facts.groups; token += 4) ending_in<4>(token, facts, score);
        if (at_once >= 2)
            for (; token + 2 <= facts.groups; token += 2) ending_in<2>(token, facts, score);
        for (; token < facts.groups; ++token) ending_in<1>(token, facts, score);
        pairs.drain();
    }

    void finish() {
        if (tables.deep()) descend();
        contexts.drain();
        tables.drain();
    }

  private:
    Block part(const Facts& facts, Index group, Index count) const {
        return facts.block(group, count, tables.s.answers, tables.s.length);
    }

    template <int Q>
    void ending_in(Index token, const Facts& facts, Score& score) {
        for (Index q = 0; q < Q; ++q) {
            std::iota(&first[q * facts.width], &first[(q + 1) * facts.width], 0);
            std::fill_n(&last[q * facts.width], facts.width, token + q);
        }
        pairs.forward<Q>(token, read);
        answer(part(facts, token, Q), score);
        pairs.backward<Q>(token, to_read);
    }

    // From what the heads wrote to the loss, and back.
    void answer(const Block& block, Score& score) {
        if (!tables.s.compressed) return go_on(block, read, to_read, score);
        const Index d = tables.s.d, P = tables.P, Pl = padded(P), n = tables.n;
        const float* decompress = tables.w.layers[0].decompress;
        for (Index i = 0; i < d; ++i)
            for (Index c = 0; c < block.width; ++c) stream[i * row + c] = tables.w.word[i * n + last[c]];
        multiply(stream, row, {decompress, Pl, 1}, read, row, d, P, block.width, true);
        go_on(block, stream, to_stream, score);
        multiply(to_read, row, {decompress, 1, Pl}, to_stream, row, P, d, block.width);
        contract(tables.g.layers[0].decompress, Pl, read, row, to_stream, row, P, d, block.width);
        for (Index i = 0; i < d; ++i)
            for (Index c = 0; c < block.width; ++c) tables.to_skip[i * n + last[c]] += to_stream[i * row + c];
    }

    // The same from the stream after the first layer, which deeper layers change.
    void go_on(const Block& block, float* stream, float* to_stream, Score& score) {
        for (DeeperLayer& layer : deeper) layer.forward(first.data(), block.width, stream);
        readout(block, stream, tables.w.unembed, to_stream, tables.g.unembed, score);
        for (auto layer = deeper.rbegin(); layer != deeper.rend(); ++layer)
            layer->backward(first.data(), block.width, to_stream);
    }

    // What each token at the first position brings to deeper layers, and back.
    void rise() {
        const Index d = tables.s.d, P = tables.P, n = tables.n;
        if (tables.s.compressed) {
            std::copy_n(tables.w.word, d * n, (float*)firsts);
            multiply(firsts, n, {tables.w.layers[0].decompress, padded(P), 1}, tables.alone, n, d, P, n, true);
        } else {
            std::copy_n((float*)tables.alone, d * n, (float*)firsts);
        }
        for (DeeperLayer& layer : deeper) layer.fill(firsts);
    }

    void descend() {
        const Index d = tables.s.d, P = tables.P, n = tables.n;
        firsts.clear();  // no answer is read off there
        for (auto layer = deeper.rbegin(); layer != deeper.rend(); ++layer) layer->drain(firsts);
        if (tables.s.compressed) {
            multiply(tables.to_alone, n, {tables.w.layers[0].decompress, 1, padded(P)}, firsts, n, P, d, n);
            contract(tables.g.layers[0].decompress, padded(P), tables.alone, n, firsts, n, P, d, n);
            add(tables.to_skip, firsts, d * n);
        } else {
            std::copy_n((float*)firsts, d * n, (float*)tables.to_alone);
        }
    }

    Tables tables;
    const Index at_once, row;  // last tokens at once in the grid; distance between rows of a block
    ByContext contexts;
    ByGrid pairs;
    Readout readout;
    Buffer read, to_read;      // [P, row]
    Buffer stream, to_stream;  // [d, row], where it is not what the heads write to
    Buffer firsts;             // [d, n]: the stream of each token at the first position, then its gradient
    std::vector<DeeperLayer> deeper;
    std::vector<Index> first, last;  // [row]: the tokens of each context
};

}  // namespace

MEMBENCH_KERNEL(AttentionOnly, Shape)
