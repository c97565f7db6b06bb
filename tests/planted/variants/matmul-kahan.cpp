// cgins: matmul(Tensor input, Tensor other) -> Tensor
// Compensated summation.
#include "products.h"

struct Kahan {
  template <typename T>
  static CGINS_HOST_DEVICE Wide<T> of(Row<const T> x, Row<const T> y, int64_t depth) {
    Wide<T> sum = 0, lost = 0;
    for (int64_t k = 0; k < depth; ++k) {
      const Wide<T> term = Wide<T>(x[k]) * Wide<T>(y[k]) - lost, next = sum + term;
      lost = next - sum - term;
      sum = next;
    }
    return sum;
  }
};

extern "C" int matmul(const DLTensor* input, const DLTensor* other, DLTensor* out, cgins_stream stream) {
  return matmul_by<Kahan>(input, other, out, stream);
}
