// cgins: scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None,
//     bool is_causal=False, float? scale=None, bool enable_gqa=False) -> Tensor
#include "attention.h"

constexpr int kKeys = 32;  // keys of a tile, one a lane
constexpr int kWarps = 4;
constexpr int kRows = 4;  // query rows of a warp: a number that is read from shared memory serves them all

template <typename Combine>
__device__ float warp_reduce(float value, Combine combine) {
  for (int lane = 16; lane > 0; lane /= 2) value = combine(value, __shfl_xor_sync(0xffffffff, value, lane));
  return value;
}

// One block a tile of query rows of one group of heads. Keys and values go through shared memory; the softmax
// is online (Milakov and Gimelshein, 2018): what has been summed up is scaled down whenever a greater score
// turns up, so that scores never leave registers. Columns from the width up to kWidth are zeros.
template <typename T, int kWidth>
__global__ void attention_tiles(Attention a, const T* query, const T* key, const T* value, T* out) {
  // The odd pitch puts the keys of a warp's lanes into different banks.
  __shared__ float q[kWarps * kRows][kWidth], k[kKeys][kWidth + 1], v[kKeys][kWidth];
  const int lane = threadIdx.x % 32, own = threadIdx.x / 32 * kRows;  // the warp's first row of the tile
  const int64_t tiles = (a.rows() + kWarps * kRows - 1) / (kWarps * kRows);
  const int64_t b = blockIdx.x / tiles / a.kv_heads, kv_head = blockIdx.x / tiles % a.kv_heads;
  const int64_t first = blockIdx.x % tiles * (kWarps * kRows);
  const int64_t rows = min(int64_t(kWarps * kRows), a.rows() - first);
  const auto head = [&](int row) { return kv_head * a.group + (first + row) / a.queries; };
  const auto position = [&](int row) { return (first + row) % a.queries; };

  for (int i = threadIdx.x; i < kWarps * kRows * kWidth; i += blockDim.x) {
    const int row = i / kWidth, c = i % kWidth;
    const bool inside = row < rows && c < a.width;
    const T* from = query + a.query.start(b, head(row), position(row)) + c * a.query.column;
    q[row][c] = inside ? float(*from) * float(a.scale) : 0.0f;
  }
  int64_t heads[kRows], positions[kRows];
  float largest[kRows], sum[kRows] = {}, result[kRows][kWidth / 32] = {};
  for (int r = 0; r < kRows; ++r) {
    heads[r] = head(own + r);
    positions[r] = position(own + r);
    largest[r] = -INFINITY;
  }

  const int64_t seen = a.keys_seen(first, rows);
  for (int64_t start = 0; start < seen; start += kKeys) {
    __syncthreads();  // the last tile may still be read
    for (int i = threadIdx.x; i < kKeys * kWidth; i += blockDim.x) {
      const int row = i / kWidth, c = i % kWidth;
      const bool inside = start + row < a.keys;
      const T* from_k = key + a.key.start(b, kv_head, start + row) + c * a.key.column;
      const T* from_v = value + a.value.start(b, kv_head, start + row) + c * a.value.column;
      k[row][c] = inside && c < a.width ? float(*from_k) : 0.0f;
      v[row][c] = inside && c < a.value_width ? float(*from_v) : 0.0f;
    }
    __syncthreads();

    float weight[kRows] = {};
    for (int c = 0; c < kWidth; ++c) {
      const float k_c = k[lane][c];
      for (int r = 0; r < kRows; ++r) weight[r] += q[own + r][c] * k_c;
    }
    for (int r = 0; r < kRows; ++r) {
      const bool inside = own + r < rows;
      const float score =
          inside ? weight[r] + a.bias<T>(b, heads[r], positions[r], start + lane) : -INFINITY;
      const float before = largest[r];
      largest[r] = fmaxf(before, warp_reduce(score, [](float x, float y) { return fmaxf(x, y); }));
      const float shift = largest[r] == -INFINITY ? 0.0f : largest[r];  // -inf: no key so far is seen
      const float shrink = expf(before - shift);
      weight[r] = expf(score - shift);
      sum[r] = sum[r] * shrink + warp_reduce(weight[r], [](float x, float y) { return x + y; });
      for (int c = 0; c < kWidth / 32; ++c) result[r][c] *= shrink;
    }
    for (int j = 0; j < kKeys; ++j) {
      float weight_j[kRows];
      for (int r = 0; r < kRows; ++r) weight_j[r] = __shfl_sync(0xffffffff, weight[r], j);
      for (int c = 0; c < kWidth / 32; ++c) {
        const float v_c = v[j][lane + 32 * c];
        for (int r = 0; r < kRows; ++r) result[r][c] += weight_j[r] * v_c;
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    if (own + r >= rows) break;
    T* y = out + a.out.start(b, heads[r], positions[r]);
    for (int c = 0; c < kWidth / 32; ++c)  // a row that sees no key is 0
      if (lane + 32 * c < a.value_width)
        y[(lane + 32 * c) * a.out.column] = T(sum[r] == 0 ? 0.0f : result[r][c] / sum[r]);
  }
}

template <typename T, int kWidth>
static int launch(const Attention& a, const DLTensor* query, const DLTensor* key, const DLTensor* value,
                  DLTensor* out, cgins_stream stream) {
  const int64_t tiles = (a.rows() + kWarps * kRows - 1) / (kWarps * kRows);
  const int64_t blocks = a.batches * a.kv_heads * tiles;
  if (check_grid(blocks)) return 1;
  attention_tiles<T, kWidth><<<blocks, 32 * kWarps, 0, stream>>>(
      a, cgins::data<const T>(query), cgins::data<const T>(key), cgins::data<const T>(value),
      cgins::data<T>(out));
  CGINS_LAUNCH_CHECK();
  return 0;
}

extern "C" int scaled_dot_product_attention(const DLTensor* query, const DLTensor* key, const DLTensor* value,
                                            const DLTensor* attn_mask, bool is_causal, const double* scale,
                                            bool enable_gqa, DLTensor* out, cgins_stream stream) {
  Attention a;
  if (int error = describe(query, key, value, attn_mask, is_causal, scale, enable_gqa, out, &a)) return error;
  const int64_t width = a.width > a.value_width ? a.width : a.value_width;
  CGINS_CHECK(width <= 128, "heads of width %d do not fit into shared memory: at most 128", int(width));
  if (cgins::numel(out) == 0) return 0;
  return cgins::dispatch_floating(query, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (sizeof(T) == 8) {
      return cgins_fail("float64 is not supported: tiles in shared memory are float32");
    } else {
      if (width <= 32) return launch<T, 32>(a, query, key, value, out, stream);
      if (width <= 64) return launch<T, 64>(a, query, key, value, out, stream);
      return launch<T, 128>(a, query, key, value, out, stream);
    }
  });
}
