// cgins: sin_kernel(Tensor input) -> Tensor
#include "elementwise.cuh"
#include "operations.h"

extern "C" int sin_kernel(const DLTensor* input, DLTensor* out, cgins_stream stream) {
  return unary(input, out, Sin{}, stream);
}
