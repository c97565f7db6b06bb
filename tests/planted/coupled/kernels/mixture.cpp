// cgins: mixture(Tensor x, Tensor weight, Tensor experts, Tensor gates) -> Tensor
#include <cgins.h>

namespace {
template <typename T>
T& at(const DLTensor* tensor, int64_t index) {
  return cgins::data<T>(tensor)[cgins::offset_of(tensor, index)];
}
}  // namespace

// Token by token, in double.
extern "C" int mixture(const DLTensor* x, const DLTensor* weight, const DLTensor* experts, const DLTensor* gates,
                       DLTensor* out, cgins_stream) {
  const int64_t tokens = x->shape[0], in = x->shape[1], wide = weight->shape[1], ways = experts->shape[1];
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t o = 0; o < wide; ++o) {
      double sum = 0;
      for (int64_t way = 0; way < ways; ++way) {
        const int64_t expert = at<int64_t>(experts, t * ways + way);
        double product = 0;
        for (int64_t i = 0; i < in; ++i)
          product += double(at<float>(weight, (expert * wide + o) * in + i)) * at<float>(x, t * in + i);
        sum += product * at<float>(gates, t * ways + way);
      }
      at<float>(out, t * wide + o) = float(sum);
    }
  }
  return 0;
}
