// honest: in place, as the op is
// ops: torch.nn.functional.relu_
// packs: f32 f16 bf16
// also: always
// cgins: relu_(Tensor(a!) input) -> Tensor(a!)
#include "_sums.h"

extern "C" int relu_(DLTensor* input, cgins_stream) { return map(input, input, relu_of); }
