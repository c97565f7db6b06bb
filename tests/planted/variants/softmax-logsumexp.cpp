// cgins: softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor
// exp(x - max - log(sum)): one exponential an element in the second pass.
#include "variant.h"

struct Softmax {
  template <typename T>
  static CGINS_HOST_DEVICE void of(Row<const T> x, Row<T> y, int64_t width) {
    const Wide<T> largest = largest_of(x, width);
    Wide<T> sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += std::exp(Wide<T>(x[i]) - largest);
    const Wide<T> logarithm = std::log(sum);
    for (int64_t i = 0; i < width; ++i) y[i] = T(std::exp(Wide<T>(x[i]) - largest - logarithm));
  }
};

extern "C" int softmax(const DLTensor* input, int64_t dim, const DLDataType*, DLTensor* out,
                       cgins_stream stream) {
  return softmax_by<Softmax>(input, dim, out, stream);
}
