// cgins: add_(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)
#include "elementwise.h"
#include "operations.h"

extern "C" int add_(DLTensor* self, const DLTensor* other, const cgins_scalar* alpha, cgins_stream) {
  return binary(self, other, self, Add{alpha->real});
}
