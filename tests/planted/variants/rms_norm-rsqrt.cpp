// cgins: rms_norm(Tensor x, Tensor weight, float eps=1e-6) -> Tensor
// Reciprocal square root, from the instruction where there is one; four running sums.
#include "variant.h"

struct Norm {
  template <typename T>
  static CGINS_HOST_DEVICE void of(Row<const T> x, const T* weight, const T*, double eps, Row<T> y, int64_t width) {
    Wide<T> lane[4] = {};
    for (int64_t i = 0; i < width; ++i) lane[i % 4] += Wide<T>(x[i]) * Wide<T>(x[i]);
    const Wide<T> mean = (lane[0] + lane[1] + lane[2] + lane[3]) / width + Wide<T>(eps);
#ifdef __CUDA_ARCH__
    const Wide<T> scale = rsqrt(mean);
#else
    const Wide<T> scale = std::sqrt(1 / mean);
#endif
    for (int64_t i = 0; i < width; ++i) y[i] = T(Wide<T>(x[i]) * (scale * Wide<T>(weight[i])));
  }
};

extern "C" int rms_norm(const DLTensor* x, const DLTensor* weight, double eps, DLTensor* out,
                        cgins_stream stream) {
  return norm_by<Norm>(x, weight, nullptr, eps, out, stream);
}
