// cgins: relu_(Tensor(a!) input) -> Tensor(a!)
#include "elementwise.cuh"
#include "operations.h"

extern "C" int relu_(DLTensor* input, cgins_stream stream) { return unary(input, input, Relu{}, stream); }
