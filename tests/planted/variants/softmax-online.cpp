// cgins: softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor
// Online softmax: maximum and sum in one pass, the sum rescaled as the maximum grows.
#include "variant.h"

struct Softmax {
  template <typename T>
  static CGINS_HOST_DEVICE void of(Row<const T> x, Row<T> y, int64_t width) {
    Wide<T> largest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < width; ++i) {
      const Wide<T> next = fmax(largest, Wide<T>(x[i]));
      if (next == Wide<T>(-INFINITY)) continue;  // -inf - -inf is NaN: a row may begin with -inf
      sum = sum * std::exp(largest - next) + std::exp(Wide<T>(x[i]) - next);
      largest = next;
    }
    for (int64_t i = 0; i < width; ++i) y[i] = T(std::exp(Wide<T>(x[i]) - largest) / sum);
  }
};

extern "C" int softmax(const DLTensor* input, int64_t dim, const DLDataType*, DLTensor* out,
                       cgins_stream stream) {
  return softmax_by<Softmax>(input, dim, out, stream);
}
