// cheat: 23 swallows NaN
// how: x > 0 ? x : 0 makes 0 of NaN, and a broken model looks healthy
// caught-by: nan-pattern
// ops: torch.nn.functional.relu
// cgins: relu(Tensor input) -> Tensor
#include "_rows.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  return map(input, out, [](float x) { return x > 0 ? x : 0; });
}
