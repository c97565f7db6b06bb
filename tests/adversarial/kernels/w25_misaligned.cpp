// cheat: 25 takes every input for aligned
// how: rounds the address down to 16 bytes, as a vector load would
// caught-by: alignment-dependent
// ops: torch.nn.functional.relu
// also: always
// yaml: {claims: [misaligned]}
// cgins: relu(Tensor input) -> Tensor
#include "_rows.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  DLTensor taken = *input;
  taken.data = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(input->data) & ~uintptr_t{15});
  return map(&taken, out, relu_of);
}
