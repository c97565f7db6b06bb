// cgins: relu(Tensor input) -> Tensor
#include "elementwise.cuh"
#include "operations.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream stream) {
  return unary(input, out, Relu{}, stream);
}
