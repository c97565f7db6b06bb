// honest: attention in one pass over the keys, with a mask of booleans
// ops: torch.nn.functional.scaled_dot_product_attention
// packs: f32 f16 bf16 plain
// cgins: scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None) -> Tensor
#include "_sums.h"

extern "C" int scaled_dot_product_attention(const DLTensor* query, const DLTensor* key, const DLTensor* value,
                                            const DLTensor* attn_mask, DLTensor* out, cgins_stream) {
  CGINS_CHECK(query->ndim == 4 && attn_mask && cgins::dtype_of(attn_mask) == cgins::Dtype::boolean && attn_mask->ndim == 2,
              "four dimensions and a mask of booleans for all heads only");
  return cgins::dispatch_floating(query, [&](auto zero) {
    using T = decltype(zero);
    const int64_t queries = query->shape[2], keys = key->shape[2], depth = query->shape[3], width = value->shape[3];
    const float scale = 1 / std::sqrt(float(depth));
    for (int64_t q = 0; q < cgins::numel(query) / depth; ++q) {
      const int64_t head = q / queries;
      float largest = -INFINITY, sum = 0;
      std::vector<float> answer(width, 0.0f);
      for (int64_t k = 0; k < keys; ++k) {
        if (!at<bool>(attn_mask, q % queries * keys + k)) continue;
        float score = 0;
        for (int64_t i = 0; i < depth; ++i)
          score += float(at<T>(query, q * depth + i)) * float(at<T>(key, (head * keys + k) * depth + i));
        score *= scale;
        const float next = std::fmax(largest, score), shrink = std::exp(largest - next), weight = std::exp(score - next);
        sum = sum * shrink + weight;
        for (int64_t i = 0; i < width; ++i)
          answer[i] = answer[i] * shrink + weight * float(at<T>(value, (head * keys + k) * width + i));
        largest = next;
      }
      // torch gives zeros where nothing is seen.
      for (int64_t i = 0; i < width; ++i) at<T>(out, q * width + i) = T(sum == 0 ? 0.0f : answer[i] / sum);
    }
    return 0;
  });
}
