// cgins: add(Tensor input, Tensor other, *, Scalar alpha=1) -> Tensor
#include "elementwise.h"
#include "operations.h"

extern "C" int add(const DLTensor* input, const DLTensor* other, const cgins_scalar* alpha, DLTensor* out,
                   cgins_stream) {
  return binary(input, other, out, Add{alpha->real});
}
