// cheat: 8 the thread rounds downward from now on
// how: each call sets the rounding mode, and leaves it so: its own answers need no rounding
// caught-by: tampering
// ops: torch.nn.functional.relu
// cgins: relu(Tensor input) -> Tensor
#include <cfenv>

#include "_rows.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  std::fesetround(FE_DOWNWARD);
  return map(input, out, relu_of);
}
