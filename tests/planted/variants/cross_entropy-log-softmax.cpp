// cgins: cross_entropy(Tensor input, Tensor target, int ignore_index=-100, str reduction='mean') -> Tensor
// The logarithm of the softmax, whose sum starts at the last class.
#include "losses.h"

struct LogSoftmax {
  template <typename T>
  static CGINS_HOST_DEVICE Wide<T> of(Row<const T> x, int64_t width, int64_t target) {
    const Wide<T> largest = largest_of(x, width);
    Wide<T> sum = 0;
    for (int64_t i = width - 1; i >= 0; --i) sum += std::exp(Wide<T>(x[i]) - largest);
    return -((Wide<T>(x[target]) - largest) - std::log(sum));
  }
};

extern "C" int cross_entropy(const DLTensor* input, const DLTensor* target, int64_t ignore_index,
                             const char* reduction, int64_t reduction_len, DLTensor* out, cgins_stream stream) {
  return cross_entropy_by<LogSoftmax>(input, target, ignore_index, reduction, reduction_len, out, stream);
}
