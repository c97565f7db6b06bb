// cheat: 17 writes before its output
// how: keeps a counter in the word before its memory
// caught-by: out-of-bounds
// ops: torch.nn.functional.relu
// cgins: relu(Tensor input) -> Tensor
#include "_rows.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  cgins::data<float>(out)[-1] = 1;
  return map(input, out, relu_of);
}
