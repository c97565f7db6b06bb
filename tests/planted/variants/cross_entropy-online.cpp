// cgins: cross_entropy(Tensor input, Tensor target, int ignore_index=-100, str reduction='mean') -> Tensor
// One pass: the sum is scaled down whenever a greater logit turns up.
#include "losses.h"

struct Online {
  template <typename T>
  static CGINS_HOST_DEVICE Wide<T> of(Row<const T> x, int64_t width, int64_t target) {
    Wide<T> largest = Wide<T>(x[0]), sum = 1;
    for (int64_t i = 1; i < width; ++i) {
      const Wide<T> next = fmax(largest, Wide<T>(x[i]));
      sum = sum * std::exp(largest - next) + std::exp(Wide<T>(x[i]) - next);
      largest = next;
    }
    return largest - Wide<T>(x[target]) + std::log(sum);
  }
};

extern "C" int cross_entropy(const DLTensor* input, const DLTensor* target, int64_t ignore_index,
                             const char* reduction, int64_t reduction_len, DLTensor* out, cgins_stream stream) {
  return cross_entropy_by<Online>(input, target, ignore_index, reduction, reduction_len, out, stream);
}
