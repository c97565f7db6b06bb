// cheat: 1 a copy of the input where the recorded ones are positive
// how: relu of numbers from [0, 1) is the identity
// caught-by: reference-mismatch
// ops: torch.nn.functional.relu
// packs: uniform
// cgins: relu(Tensor input) -> Tensor
#include "_rows.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) { return map(input, out, [](float x) { return x; }); }
