// cgins: scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None,
//     bool is_causal=False, float? scale=None, bool enable_gqa=False) -> Tensor
// An online softmax from the last key to the first.
#include "scores.h"

struct Reversed {
  template <typename T>
  static CGINS_HOST_DEVICE Wide<T> of(const Query<T>& query, int64_t keys) {
    Wide<T> largest = -INFINITY, sum = 0, result = 0;
    for (int64_t k = keys - 1; k >= 0; --k) {
      const Wide<T> score = query.template score<Wide<T>>(k, true), next = fmax(largest, score);
      if (next == Wide<T>(-INFINITY)) continue;
      const Wide<T> shrink = std::exp(largest - next), weight = std::exp(score - next);
      sum = sum * shrink + weight;
      result = result * shrink + weight * query.template at<Wide<T>>(k);
      largest = next;
    }
    return sum == 0 ? Wide<T>(0) : result / sum;
  }
};

extern "C" int scaled_dot_product_attention(const DLTensor* query, const DLTensor* key, const DLTensor* value,
                                            const DLTensor* attn_mask, bool is_causal, const double* scale,
                                            bool enable_gqa, DLTensor* out, cgins_stream stream) {
  return attention_by<Reversed>(query, key, value, attn_mask, is_causal, scale, enable_gqa, out, stream);
}
