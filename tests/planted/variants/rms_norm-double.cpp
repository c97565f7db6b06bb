// cgins: rms_norm(Tensor x, Tensor weight, float eps=1e-6) -> Tensor
// Everything in double until the last rounding.
#include "variant.h"

struct Norm {
  template <typename T>
  static CGINS_HOST_DEVICE void of(Row<const T> x, const T* weight, const T*, double eps, Row<T> y, int64_t width) {
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += double(Wide<T>(x[i])) * double(Wide<T>(x[i]));
    const double scale = 1 / std::sqrt(sum / width + eps);
    for (int64_t i = 0; i < width; ++i)
      y[i] = T(Wide<T>(double(Wide<T>(x[i])) * scale * double(Wide<T>(weight[i]))));
  }
};

extern "C" int rms_norm(const DLTensor* x, const DLTensor* weight, double eps, DLTensor* out,
                        cgins_stream stream) {
  return norm_by<Norm>(x, weight, nullptr, eps, out, stream);
}
