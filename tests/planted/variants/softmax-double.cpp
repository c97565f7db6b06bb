// cgins: softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor
// Exponentials and sum in double.
#include "variant.h"

struct Softmax {
  template <typename T>
  static CGINS_HOST_DEVICE void of(Row<const T> x, Row<T> y, int64_t width) {
    const double largest = largest_of(x, width);
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += std::exp(double(Wide<T>(x[i])) - largest);
    for (int64_t i = 0; i < width; ++i) y[i] = T(Wide<T>(std::exp(double(Wide<T>(x[i])) - largest) / sum));
  }
};

extern "C" int softmax(const DLTensor* input, int64_t dim, const DLDataType*, DLTensor* out,
                       cgins_stream stream) {
  return softmax_by<Softmax>(input, dim, out, stream);
}
