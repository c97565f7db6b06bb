// cgins: scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None,
//     bool is_causal=False, float? scale=None, bool enable_gqa=False) -> Tensor
#include <algorithm>
#include <vector>

#include "attention.h"

constexpr int64_t kRows = 32, kKeys = 64;  // query rows and keys of a tile

// y += factor · x
template <typename Wide>
static void add_scaled(Wide factor, const Wide* __restrict x, int64_t count, Wide* __restrict y) {
  for (int64_t i = 0; i < count; ++i) y[i] += factor * x[i];
}

// Rows of one group of heads with an online softmax (Milakov and Gimelshein, 2018): what has been summed
// up is scaled down whenever a greater score turns up, so that no row of scores is ever held as a whole.
template <typename T>
struct Tile {
  using Wide = cgins::accumulator<T>;
  const Attention& a;
  std::vector<Wide> query, key, value, score, sum, largest, result;

  explicit Tile(const Attention& described)
      : a(described), query(kRows * a.width), key(a.width * kKeys), value(kKeys * a.value_width), score(kKeys),
        sum(kRows), largest(kRows), result(kRows * a.value_width) {}

  // Keys are laid down column by column: all scores of a query then grow side by side.
  void load_keys(const T* keys, const T* values, int64_t count) {
    for (int64_t j = 0; j < count; ++j) {
      for (int64_t c = 0; c < a.width; ++c)
        key[c * kKeys + j] = Wide(keys[j * a.key.row + c * a.key.column]);
      for (int64_t c = 0; c < a.value_width; ++c)
        value[j * a.value_width + c] = Wide(values[j * a.value.row + c * a.value.column]);
    }
  }

  // `score` comes with what is added to the products, and leaves as weights.
  void add_keys(int64_t row, int64_t count) {
    for (int64_t c = 0; c < a.width; ++c)
      add_scaled(query[row * a.width + c], &key[c * kKeys], count, score.data());
    const Wide before = largest[row];
    largest[row] = std::max(before, *std::max_element(score.begin(), score.begin() + count));
    const Wide shift = largest[row] == Wide(-INFINITY) ? Wide(0) : largest[row];  // -inf: no key so far is seen
    const Wide shrink = std::exp(before - shift);
    Wide* y = &result[row * a.value_width];
    for (int64_t c = 0; c < a.value_width; ++c) y[c] *= shrink;
    sum[row] *= shrink;
    for (int64_t j = 0; j < count; ++j) {
      const Wide weight = std::exp(score[j] - shift);
      sum[row] += weight;
      add_scaled(weight, &value[j * a.value_width], a.value_width, y);
    }
  }

  void run(int64_t b, int64_t kv_head, int64_t first, const T* queries, const T* keys, const T* values,
           T* out) {
    const int64_t rows = std::min(kRows, a.rows() - first), seen = a.keys_seen(first, rows);
    const auto head = [&](int64_t row) { return kv_head * a.group + (first + row) / a.queries; };
    const auto position = [&](int64_t row) { return (first + row) % a.queries; };
    for (int64_t row = 0; row < rows; ++row) {
      const T* q = queries + a.query.start(b, head(row), position(row));
      for (int64_t c = 0; c < a.width; ++c)
        query[row * a.width + c] = Wide(q[c * a.query.column]) * Wide(a.scale);
    }
    std::fill(sum.begin(), sum.end(), Wide(0));
    std::fill(largest.begin(), largest.end(), Wide(-INFINITY));
    std::fill(result.begin(), result.end(), Wide(0));
    for (int64_t k = 0; k < seen; k += kKeys) {
      const int64_t count = std::min(kKeys, seen - k);
      load_keys(keys + a.key.start(b, kv_head, k), values + a.value.start(b, kv_head, k), count);
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t j = 0; j < count; ++j)
          score[j] = a.template bias<T>(b, head(row), position(row), k + j);
        add_keys(row, count);
      }
    }
    for (int64_t row = 0; row < rows; ++row) {
      T* y = out + a.out.start(b, head(row), position(row));
      const Wide inverse = sum[row] == 0 ? Wide(0) : 1 / sum[row];  // a row that sees no key is 0
      for (int64_t c = 0; c < a.value_width; ++c)
        y[c * a.out.column] = T(result[row * a.value_width + c] * inverse);
    }
  }
};

extern "C" int scaled_dot_product_attention(const DLTensor* query, const DLTensor* key, const DLTensor* value,
                                            const DLTensor* attn_mask, bool is_causal, const double* scale,
                                            bool enable_gqa, DLTensor* out, cgins_stream) {
  Attention a;
  if (int error = describe(query, key, value, attn_mask, is_causal, scale, enable_gqa, out, &a)) return error;
  return cgins::dispatch_floating(query, [&](auto zero) {
    using T = decltype(zero);
    const int64_t tiles = (a.rows() + kRows - 1) / kRows, count = a.batches * a.kv_heads * tiles;
#pragma omp parallel if (a.batches * a.kv_heads * a.rows() * a.keys * a.width > 32768)
    {
      Tile<T> tile(a);
#pragma omp for
      for (int64_t i = 0; i < count; ++i)
        tile.run(i / tiles / a.kv_heads, i / tiles % a.kv_heads, i % tiles * kRows, cgins::data<T>(query),
                 cgins::data<T>(key), cgins::data<T>(value), cgins::data<T>(out));
    }
    return 0;
  });
}
