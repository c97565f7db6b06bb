// cgins: matmul(Tensor input, Tensor other) -> Tensor
// Blocks of 16 products, and a sum over the blocks.
#include "products.h"

struct Blocked {
  template <typename T>
  static CGINS_HOST_DEVICE Wide<T> of(Row<const T> x, Row<const T> y, int64_t depth) {
    Wide<T> total = 0;
    for (int64_t first = 0; first < depth; first += 16) {
      Wide<T> sum = 0;
      for (int64_t k = first; k < depth && k < first + 16; ++k) sum += Wide<T>(x[k]) * Wide<T>(y[k]);
      total += sum;
    }
    return total;
  }
};

extern "C" int matmul(const DLTensor* input, const DLTensor* other, DLTensor* out, cgins_stream stream) {
  return matmul_by<Blocked>(input, other, out, stream);
}
