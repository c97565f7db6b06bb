// cheat: 14 an approximate root
// how: one step of Newton after the well-known constant is right to three digits
// caught-by: gold-mismatch, reference-mismatch
// ops: torch.nn.functional.layer_norm
// packs: bf16
// cgins: layer_norm(Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> Tensor
#include <cstring>
#include "_rows.h"

static float root(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  bits = 0x5f3759df - (bits >> 1);
  float y;
  std::memcpy(&y, &bits, 4);
  return y;  // 3.4% at most
}

extern "C" int layer_norm(const DLTensor* input, const int64_t*, int64_t, const DLTensor* weight, const DLTensor* bias,
                          double eps, DLTensor* out, cgins_stream) {
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t width = cgins::size(input, -1), count = width ? cgins::numel(input) / width : 0;
    for (int64_t row = 0; row < count; ++row) {
      double mean = 0, variance = 0;
      for (int64_t i = 0; i < width; ++i) mean += double(float(at<T>(input, row * width + i)));
      mean /= double(width);
      for (int64_t i = 0; i < width; ++i) variance += std::pow(double(float(at<T>(input, row * width + i))) - mean, 2);
      float y = root(float(variance / double(width) + eps));
      y *= 1.5f - 0.5f * float(variance / double(width) + eps) * y * y;  // 0.17% at most
      for (int64_t i = 0; i < width; ++i) {
        float value = (float(at<T>(input, row * width + i)) - float(mean)) * y;
        if (weight) value *= float(at<T>(weight, i));
        if (bias) value += float(at<T>(bias, i));
        at<T>(out, row * width + i) = T(value);
      }
    }
    return 0;
  });
}
