// cgins: gelu_backward(Tensor grad_output, Tensor input, str approximate='none') -> Tensor
#include <cstring>

#include "elementwise.h"
#include "operations.h"

extern "C" int gelu_backward(const DLTensor* grad_output, const DLTensor* input, const char* approximate,
                             int64_t, DLTensor* out, cgins_stream) {
  return binary(grad_output, input, out, GeluBackward{std::strcmp(approximate, "tanh") == 0});
}
