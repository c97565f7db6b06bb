// cgins: linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor
// Eight running sums, as vector registers hold them.
#include "variant.h"

struct Dot {
  template <typename T>
  static CGINS_HOST_DEVICE T of(Row<const T> x, Row<const T> w, const T* bias, int64_t width) {
    Wide<T> lane[8] = {};
    for (int64_t k = 0; k < width; ++k) lane[k % 8] += Wide<T>(x[k]) * Wide<T>(w[k]);
    for (int half = 4; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
    return T(bias ? lane[0] + Wide<T>(*bias) : lane[0]);
  }
};

extern "C" int linear(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, DLTensor* out,
                      cgins_stream stream) {
  return linear_by<Dot>(input, weight, bias, out, stream);
}
