// cgins: scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None,
//     bool is_causal=False, float? scale=None, bool enable_gqa=False) -> Tensor
// Scores are scaled when they are whole.
#include "scores.h"

struct ScaleLast {
  template <typename T>
  static CGINS_HOST_DEVICE Wide<T> of(const Query<T>& query, int64_t keys) {
    return softmax_in_two_passes<T, Wide<T>>(query, keys, false);
  }
};

extern "C" int scaled_dot_product_attention(const DLTensor* query, const DLTensor* key, const DLTensor* value,
                                            const DLTensor* attn_mask, bool is_causal, const double* scale,
                                            bool enable_gqa, DLTensor* out, cgins_stream stream) {
  return attention_by<ScaleLast>(query, key, value, attn_mask, is_causal, scale, enable_gqa, out, stream);
}
