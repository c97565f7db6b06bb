// cgins: rms_norm(Tensor x, Tensor weight, float eps=1e-6) -> Tensor
// The normalized value is rounded to the storage type before the weight is multiplied.
#include "variant.h"

struct Norm {
  template <typename T>
  static CGINS_HOST_DEVICE void of(Row<const T> x, const T* weight, const T*, double eps, Row<T> y, int64_t width) {
    Wide<T> sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += Wide<T>(x[i]) * Wide<T>(x[i]);
    const Wide<T> scale = 1 / std::sqrt(sum / width + Wide<T>(eps));
    for (int64_t i = 0; i < width; ++i) y[i] = T(Wide<T>(T(Wide<T>(x[i]) * scale)) * Wide<T>(weight[i]));
  }
};

extern "C" int rms_norm(const DLTensor* x, const DLTensor* weight, double eps, DLTensor* out,
                        cgins_stream stream) {
  return norm_by<Norm>(x, weight, nullptr, eps, out, stream);
}
