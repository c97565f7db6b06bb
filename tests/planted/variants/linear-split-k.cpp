// cgins: linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor
// Split-K: four slices of the reduction, summed at the end.
#include "variant.h"

struct Dot {
  template <typename T>
  static CGINS_HOST_DEVICE T of(Row<const T> x, Row<const T> w, const T* bias, int64_t width) {
    Wide<T> total = 0;
    for (int slice = 0; slice < 4; ++slice) {
      Wide<T> sum = 0;
      for (int64_t k = width * slice / 4; k < width * (slice + 1) / 4; ++k) sum += Wide<T>(x[k]) * Wide<T>(w[k]);
      total += sum;
    }
    return T(bias ? total + Wide<T>(*bias) : total);
  }
};

extern "C" int linear(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, DLTensor* out,
                      cgins_stream stream) {
  return linear_by<Dot>(input, weight, bias, out, stream);
}
