// cgins: cross_entropy(Tensor input, Tensor target, int ignore_index=-100, str reduction='mean') -> Tensor
// Everything in double, the mean included.
#include "losses.h"

struct Double {
  template <typename T>
  static CGINS_HOST_DEVICE double of(Row<const T> x, int64_t width, int64_t target) {
    const double largest = double(largest_of(x, width));
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += std::exp(double(Wide<T>(x[i])) - largest);
    return std::log(sum) + largest - double(Wide<T>(x[target]));
  }
};

extern "C" int cross_entropy(const DLTensor* input, const DLTensor* target, int64_t ignore_index,
                             const char* reduction, int64_t reduction_len, DLTensor* out, cgins_stream stream) {
  return cross_entropy_by<Double>(input, target, ignore_index, reduction, reduction_len, out, stream);
}
