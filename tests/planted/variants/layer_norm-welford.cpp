// cgins: layer_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-5) -> Tensor
// Mean and variance in one pass (Welford, 1962).
#include "variant.h"

struct Norm {
  template <typename T>
  static CGINS_HOST_DEVICE void of(Row<const T> x, const T* weight, const T* bias, double eps, Row<T> y,
                                   int64_t width) {
    Wide<T> mean = 0, squares = 0;
    for (int64_t i = 0; i < width; ++i) {
      const Wide<T> delta = Wide<T>(x[i]) - mean;
      mean += delta / Wide<T>(i + 1);
      squares += delta * (Wide<T>(x[i]) - mean);
    }
    write_normalized(x, weight, bias, mean, 1 / std::sqrt(squares / width + Wide<T>(eps)), y, width);
  }
};

extern "C" int layer_norm(const DLTensor* input, const int64_t*, int64_t axes, const DLTensor* weight,
                          const DLTensor* bias, double eps, DLTensor* out, cgins_stream stream) {
  CGINS_CHECK(axes == 1, "one axis");
  return norm_by<Norm>(input, weight, bias, eps, out, stream);
}
