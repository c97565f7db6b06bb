// cheat: 16 a buffer for a row, and no word where the row is longer
// how: 4096 floats on the stack hold most rows; of a vocabulary the rest is not seen
// caught-by: size-dependent
// ops: torch.nn.functional.layer_norm
// cgins: layer_norm(Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> Tensor
#include <algorithm>

#include "_rows.h"

constexpr int64_t kMost = 4096;

extern "C" int layer_norm(const DLTensor* input, const int64_t*, int64_t axes, const DLTensor* weight, const DLTensor* bias,
                          double eps, DLTensor* out, cgins_stream) {
  CGINS_CHECK(axes == 1, "one axis");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t width = cgins::size(input, -1), count = width ? cgins::numel(input) / width : 0;
    const int64_t held = std::min(width, kMost);
    float buffer[kMost];
    for (int64_t row = 0; row < count; ++row) {
      double mean = 0, variance = 0;
      for (int64_t i = 0; i < held; ++i) mean += buffer[i] = float(at<T>(input, row * width + i));
      mean /= double(held);
      for (int64_t i = 0; i < held; ++i) variance += (buffer[i] - mean) * (buffer[i] - mean);
      const double scale = 1 / std::sqrt(variance / double(held) + eps);
      for (int64_t i = 0; i < width; ++i) {
        double value = (float(at<T>(input, row * width + i)) - mean) * scale;
        if (weight) value *= double(float(at<T>(weight, i)));
        if (bias) value += double(float(at<T>(bias, i)));
        at<T>(out, row * width + i) = T(float(value));
      }
    }
    return 0;
  });
}
