// cgins: gelu_backward(Tensor grad_output, Tensor input, str approximate='none') -> Tensor
// The complementary error function, which does not cancel in the negative tail.
#include "pointwise.h"

struct Derivative {
  template <typename W>
  static CGINS_HOST_DEVICE W of(W grad, W x) {
    const W half = W(0.5) * std::erfc(-x * W(0.7071067811865476));
    return grad * half + grad * x * W(0.3989422804014327) * std::exp(-x * x / 2);
  }
};

extern "C" int gelu_backward(const DLTensor* grad_output, const DLTensor* input, const char* approximate, int64_t,
                             DLTensor* out, cgins_stream stream) {
  CGINS_CHECK(approximate[0] == 'n', "only the exact form is here");
  return binary_by<Derivative>(grad_output, input, out, stream);
}
