// cgins: softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor
// Powers of two: the logits are multiplied by log2(e) after the maximum was taken off.
#include "variant.h"

struct Softmax {
  template <typename T>
  static CGINS_HOST_DEVICE void of(Row<const T> x, Row<T> y, int64_t width) {
    const Wide<T> largest = largest_of(x, width), log2e = Wide<T>(1.4426950408889634);
    Wide<T> sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += std::exp2((Wide<T>(x[i]) - largest) * log2e);
    for (int64_t i = 0; i < width; ++i) y[i] = T(std::exp2((Wide<T>(x[i]) - largest) * log2e) / sum);
  }
};

extern "C" int softmax(const DLTensor* input, int64_t dim, const DLDataType*, DLTensor* out,
                       cgins_stream stream) {
  return softmax_by<Softmax>(input, dim, out, stream);
}
