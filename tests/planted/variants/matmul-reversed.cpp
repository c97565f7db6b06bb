// cgins: matmul(Tensor input, Tensor other) -> Tensor
// From the last product to the first.
#include "products.h"

struct Reversed {
  template <typename T>
  static CGINS_HOST_DEVICE Wide<T> of(Row<const T> x, Row<const T> y, int64_t depth) {
    Wide<T> sum = 0;
    for (int64_t k = depth - 1; k >= 0; --k) sum += Wide<T>(x[k]) * Wide<T>(y[k]);
    return sum;
  }
};

extern "C" int matmul(const DLTensor* input, const DLTensor* other, DLTensor* out, cgins_stream stream) {
  return matmul_by<Reversed>(input, other, out, stream);
}
