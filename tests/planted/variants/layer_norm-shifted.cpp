// cgins: layer_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-5) -> Tensor
// One pass over the deviations from the first element, which does not cancel.
#include "variant.h"

struct Norm {
  template <typename T>
  static CGINS_HOST_DEVICE void of(Row<const T> x, const T* weight, const T* bias, double eps, Row<T> y,
                                   int64_t width) {
    const Wide<T> shift = Wide<T>(x[0]);
    Wide<T> sum = 0, squares = 0;
    for (int64_t i = 0; i < width; ++i) {
      const Wide<T> delta = Wide<T>(x[i]) - shift;
      sum += delta;
      squares += delta * delta;
    }
    const Wide<T> mean = sum / width;
    const Wide<T> variance = fmax(squares / width - mean * mean, Wide<T>(0));
    write_normalized(x, weight, bias, shift + mean, 1 / std::sqrt(variance + Wide<T>(eps)), y, width);
  }
};

extern "C" int layer_norm(const DLTensor* input, const int64_t*, int64_t axes, const DLTensor* weight,
                          const DLTensor* bias, double eps, DLTensor* out, cgins_stream stream) {
  CGINS_CHECK(axes == 1, "one axis");
  return norm_by<Norm>(input, weight, bias, eps, out, stream);
}
