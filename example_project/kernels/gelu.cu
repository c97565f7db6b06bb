// cgins: gelu(Tensor input, str approximate='none') -> Tensor
#include <cstring>

#include "elementwise.cuh"
#include "operations.h"

extern "C" int gelu(const DLTensor* input, const char* approximate, int64_t, DLTensor* out, cgins_stream stream) {
  return unary(input, out, Gelu{std::strcmp(approximate, "tanh") == 0}, stream);
}
