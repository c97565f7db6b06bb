// honest: OpenMP over rows, each by one thread
// ops: torch.nn.functional.layer_norm
// packs: f32 f16 bf16 even
// yaml: {claims: [batch_invariant]}
// cgins: layer_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-5) -> Tensor
#include <omp.h>

#include "_sums.h"

extern "C" int layer_norm(const DLTensor* input, const int64_t*, int64_t axes, const DLTensor* weight,
                          const DLTensor* bias, double eps, DLTensor* out, cgins_stream) {
  CGINS_CHECK(axes == 1, "one axis only");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t width = cgins::size(input, -1), rows = width ? cgins::numel(input) / width : 0;
#pragma omp parallel for schedule(dynamic, 3)
    for (int64_t row = 0; row < rows; ++row) {
      double mean = 0, variance = 0;
      for (int64_t i = 0; i < width; ++i) mean += double(float(at<T>(input, row * width + i)));
      mean /= width;
      for (int64_t i = 0; i < width; ++i) {
        const double centered = double(float(at<T>(input, row * width + i))) - mean;
        variance += centered * centered;
      }
      const double scale = 1 / std::sqrt(variance / width + eps);
      for (int64_t i = 0; i < width; ++i) {
        double value = (double(float(at<T>(input, row * width + i))) - mean) * scale;
        if (weight) value *= double(float(at<T>(weight, i)));
        if (bias) value += double(float(at<T>(bias, i)));
        at<T>(out, row * width + i) = T(float(value));
      }
    }
    return 0;
  });
}
