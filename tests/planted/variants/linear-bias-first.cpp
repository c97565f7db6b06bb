// cgins: linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor
// Starts from the bias, and sums in order.
#include "variant.h"

struct Dot {
  template <typename T>
  static CGINS_HOST_DEVICE T of(Row<const T> x, Row<const T> w, const T* bias, int64_t width) {
    Wide<T> sum = bias ? Wide<T>(*bias) : Wide<T>(0);
    for (int64_t k = 0; k < width; ++k) sum += Wide<T>(x[k]) * Wide<T>(w[k]);
    return T(sum);
  }
};

extern "C" int linear(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, DLTensor* out,
                      cgins_stream stream) {
  return linear_by<Dot>(input, weight, bias, out, stream);
}
