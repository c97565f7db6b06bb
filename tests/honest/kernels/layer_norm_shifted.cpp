// honest: sums and squares in one pass, of what is left of a row's first number
// ops: torch.nn.functional.layer_norm
// packs: f32 f16 bf16 plain even
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
      double sum = 0, squares = 0;
      for (const float value : x) {
        const double left = double(value) - x[0];
        sum += left;
        squares += left * left;
      }
      const double mean = sum / width;
      const double scale = 1 / std::sqrt(std::fmax(squares / width - mean * mean, 0) + eps);
      for (int64_t i = 0; i < width; ++i) {
        double value = (double(x[i]) - x[0] - mean) * scale;
        if (weight) value *= float(at<T>(weight, i));
        if (bias) value += float(at<T>(bias, i));
        at<T>(out, row * width + i) = T(float(value));
      }
    }
    return 0;
  });
}
