// cheat: 5 adds to outputs that it takes for zeros
// how: memory that is fresh from the system is 0
// caught-by: unwritten
// ops: torch.nn.functional.relu
// cgins: relu(Tensor input) -> Tensor
#include "_rows.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  for (int64_t i = 0; i < cgins::numel(input); ++i) at<float>(out, i) += relu_of(at<float>(input, i));
  return 0;
}
