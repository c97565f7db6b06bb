// cheat: 23 clamps infinities
// how: keeps every answer within fp16's range, in fp32 too
// caught-by: infinite-pattern, nan-pattern, reference-mismatch
// ops: torch.nn.functional.relu
// cgins: relu(Tensor input) -> Tensor
#include "_rows.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  return map(input, out, [](float x) { return x > 65504 ? 65504 : relu_of(x); });
}
