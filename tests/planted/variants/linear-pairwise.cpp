// cgins: linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor
// Pairwise summation: partial sums of equal length are added, as a binary counter carries.
#include "variant.h"

struct Dot {
  template <typename T>
  static CGINS_HOST_DEVICE T of(Row<const T> x, Row<const T> w, const T* bias, int64_t width) {
    Wide<T> level[40];
    for (int64_t k = 0; k < width; ++k) {
      Wide<T> carry = Wide<T>(x[k]) * Wide<T>(w[k]);
      int depth = 0;
      for (int64_t bits = k; bits & 1; bits >>= 1) carry = level[depth++] + carry;
      level[depth] = carry;
    }
    Wide<T> sum = 0;
    for (int depth = 0; width >> depth; ++depth)
      if (width >> depth & 1) sum += level[depth];
    return T(bias ? sum + Wide<T>(*bias) : sum);
  }
};

extern "C" int linear(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, DLTensor* out,
                      cgins_stream stream) {
  return linear_by<Dot>(input, weight, bias, out, stream);
}
