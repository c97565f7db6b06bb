// honest: Welford's mean and variance in one pass
// ops: torch.nn.functional.layer_norm
// packs: f32 f16 bf16 plain even strided
// cgins: layer_norm(Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> Tensor
#include "_sums.h"

extern "C" int layer_norm(const DLTensor* input, const int64_t*, int64_t normalized_shape_len, const DLTensor* weight,
                          const DLTensor* bias, double eps, DLTensor* out, cgins_stream) {
  CGINS_CHECK(normalized_shape_len == 1, "one normalized axis only");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t width = cgins::size(input, -1);
    for (int64_t row = 0; width && row < cgins::numel(input) / width; ++row) {
      const std::vector<float> x = row_of<T>(input, row);
      float mean = 0, squares = 0;
      for (int64_t i = 0; i < width; ++i) {
        const float before = x[i] - mean;
        mean += before / float(i + 1);
        squares += before * (x[i] - mean);
      }
      const float scale = 1 / std::sqrt(squares / float(width) + float(eps));
      for (int64_t i = 0; i < width; ++i) {
        float value = (x[i] - mean) * scale;
        if (weight) value *= float(at<T>(weight, i));
        if (bias) value += float(at<T>(bias, i));
        at<T>(out, row * width + i) = T(value);
      }
    }
    return 0;
  });
}
