// cgins: sin_kernel(Tensor input) -> Tensor
#include "elementwise.h"
#include "operations.h"

extern "C" int sin_kernel(const DLTensor* input, DLTensor* out, cgins_stream) { return unary(input, out, Sin{}); }
