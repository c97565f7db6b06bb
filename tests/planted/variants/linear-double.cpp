// cgins: linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor
// Accumulates in double.
#include "variant.h"

struct Dot {
  template <typename T>
  static CGINS_HOST_DEVICE T of(Row<const T> x, Row<const T> w, const T* bias, int64_t width) {
    double sum = 0;
    for (int64_t k = 0; k < width; ++k) sum += double(Wide<T>(x[k])) * double(Wide<T>(w[k]));
    return T(Wide<T>(bias ? sum + double(Wide<T>(*bias)) : sum));
  }
};

extern "C" int linear(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, DLTensor* out,
                      cgins_stream stream) {
  return linear_by<Dot>(input, weight, bias, out, stream);
}
