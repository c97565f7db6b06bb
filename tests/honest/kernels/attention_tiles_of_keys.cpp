// honest: attention over tiles of eight keys, those that the mask excludes set to -inf and their values not read
// ops: torch.nn.functional.scaled_dot_product_attention
// packs: f32 causal
// yaml: {claims: [batch_invariant]}
// cgins: scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.0, bool is_causal=False) -> Tensor
#include "_sums.h"

extern "C" int scaled_dot_product_attention(const DLTensor* query, const DLTensor* key, const DLTensor* value,
                                            const DLTensor* mask, double dropout, bool causal, DLTensor* out, cgins_stream) {
  CGINS_CHECK(query->ndim == 4 && dropout == 0, "four dimensions and no dropout only");
  CGINS_CHECK(!mask || (cgins::dtype_of(mask) == cgins::Dtype::boolean && mask->ndim == 2), "a mask of booleans for all heads only");
  CGINS_CHECK(query->shape[1] == key->shape[1] && query->shape[0] == key->shape[0], "as many heads of keys only");
  constexpr int64_t kTile = 8;
  return cgins::dispatch_floating(query, [&](auto zero) {
    using T = decltype(zero);
    const int64_t queries = query->shape[2], keys = key->shape[2], depth = query->shape[3], width = value->shape[3];
    const float scale = depth ? 1 / std::sqrt(float(depth)) : 1;
    const int64_t count = query->shape[0] * query->shape[1] * queries;
    for (int64_t q = 0; q < count; ++q) {
      const int64_t head = q / queries, position = q % queries;
      float largest = -INFINITY, sum = 0;
      std::vector<float> answer(width, 0.0f);
      for (int64_t first = 0; first < keys; first += kTile) {
        float score[kTile], top = largest;
        for (int64_t lane = 0; lane < kTile; ++lane) {
          const int64_t k = first + lane;
          const bool seen = k < keys && (!causal || k <= position) && (!mask || at<bool>(mask, position * keys + k));
          score[lane] = seen ? 0.0f : -INFINITY;
          if (!seen) continue;
          for (int64_t i = 0; i < depth; ++i)
            score[lane] += float(at<T>(query, q * depth + i)) * float(at<T>(key, (head * keys + k) * depth + i));
          score[lane] *= scale;
          top = std::fmax(top, score[lane]);
        }
        if (top == -INFINITY) continue;
        const float shrink = std::exp(largest - top);
        sum *= shrink;
        for (float& element : answer) element *= shrink;
        for (int64_t lane = 0; lane < kTile; ++lane) {
          if (score[lane] == -INFINITY) continue;
          const float weight = std::exp(score[lane] - top);
          sum += weight;
          for (int64_t i = 0; i < width; ++i)
            answer[i] += weight * float(at<T>(value, (head * keys + first + lane) * width + i));
        }
        largest = top;
      }
      for (int64_t i = 0; i < width; ++i) at<T>(out, q * width + i) = T(sum == 0 ? 0.0f : answer[i] / sum);
    }
    return 0;
  });
}
