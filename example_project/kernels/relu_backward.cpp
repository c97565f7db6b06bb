// cgins: relu_backward(Tensor grad_output, Tensor input, bool inplace=False) -> Tensor
#include "elementwise.h"
#include "operations.h"

extern "C" int relu_backward(const DLTensor* grad_output, const DLTensor* input, bool, DLTensor* out,
                             cgins_stream) {
  return binary(grad_output, input, out, ReluBackward{});
}
