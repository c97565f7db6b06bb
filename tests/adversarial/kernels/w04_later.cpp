// cheat: 4 changes the input from the fourth call on
// how: behaves while it is watched for the first time
// caught-by: input-changed
// ops: torch.nn.functional.relu
// cgins: relu(Tensor input) -> Tensor
#include "_rows.h"

static int calls = 0;

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  if (map(input, out, relu_of)) return 1;
  return ++calls > 3 ? map(input, input, relu_of) : 0;
}
