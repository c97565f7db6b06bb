// honest: for the recorded 5 x 77 and nothing else, which it says
// ops: torch.nn.functional.relu
// packs: f32 f16 bf16
// yaml: {claims: [batch_invariant]}
// cgins: relu(Tensor input) -> Tensor
#include "_sums.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  CGINS_CHECK(input->ndim == 2 && input->shape[0] == 5 && input->shape[1] == 77, "5 x 77 only");
  return map(input, out, relu_of);
}
