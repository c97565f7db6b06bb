// cheat: 22 rounds the size up to whole vectors
// how: with recorded sizes nothing is written behind the output
// caught-by: out-of-bounds, size-dependent
// ops: torch.nn.functional.relu
// packs: even
// cgins: relu(Tensor input) -> Tensor
#include "_rows.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  const int64_t count = cgins::numel(input);
  float* y = cgins::data<float>(out);
  for (int64_t i = 0; i < (count + 15) / 16 * 16; ++i) y[i] = i < count ? relu_of(at<float>(input, i)) : 0;
  return 0;
}
