// cgins: relu_(Tensor(a!) input) -> Tensor(a!)
#include "elementwise.h"
#include "operations.h"

extern "C" int relu_(DLTensor* input, cgins_stream) { return unary(input, input, Relu{}); }
