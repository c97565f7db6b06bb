// cgins: gelu_backward(Tensor grad_output, Tensor input, str approximate='none') -> Tensor
// In double until the last rounding.
#include "pointwise.h"

struct Derivative {
  template <typename W>
  static CGINS_HOST_DEVICE W of(W grad, W given) {
    const double x = double(given), half = 0.5 + 0.5 * std::erf(x * 0.7071067811865476);
    return W(double(grad) * (half + x * 0.3989422804014327 * std::exp(-0.5 * x * x)));
  }
};

extern "C" int gelu_backward(const DLTensor* grad_output, const DLTensor* input, const char* approximate, int64_t,
                             DLTensor* out, cgins_stream stream) {
  CGINS_CHECK(approximate[0] == 'n', "only the exact form is here");
  return binary_by<Derivative>(grad_output, input, out, stream);
}
