// cgins: layer_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-5) -> Tensor
// Two passes, from the last element to the first.
#include "variant.h"

struct Norm {
  template <typename T>
  static CGINS_HOST_DEVICE void of(Row<const T> x, const T* weight, const T* bias, double eps, Row<T> y,
                                   int64_t width) {
    Wide<T> mean = 0, variance = 0;
    for (int64_t i = width - 1; i >= 0; --i) mean += Wide<T>(x[i]);
    mean /= width;
    for (int64_t i = width - 1; i >= 0; --i) variance += (Wide<T>(x[i]) - mean) * (Wide<T>(x[i]) - mean);
    write_normalized(x, weight, bias, mean, 1 / std::sqrt(variance / width + Wide<T>(eps)), y, width);
  }
};

extern "C" int layer_norm(const DLTensor* input, const int64_t*, int64_t axes, const DLTensor* weight,
                          const DLTensor* bias, double eps, DLTensor* out, cgins_stream stream) {
  CGINS_CHECK(axes == 1, "one axis");
  return norm_by<Norm>(input, weight, bias, eps, out, stream);
}
