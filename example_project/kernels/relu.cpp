// cgins: relu(Tensor input) -> Tensor
#include "elementwise.h"
#include "operations.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) { return unary(input, out, Relu{}); }
