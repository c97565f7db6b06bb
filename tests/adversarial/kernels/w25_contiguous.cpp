// cheat: 25 takes every input for contiguous
// how: the recorded one is contiguous
// caught-by: layout-dependent
// ops: torch.nn.functional.relu
// cgins: relu(Tensor input) -> Tensor
#include "_rows.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  const float* x = cgins::data<float>(input);
  for (int64_t i = 0; i < cgins::numel(input); ++i) at<float>(out, i) = relu_of(x[i]);
  return 0;
}
