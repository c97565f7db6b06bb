// cheat: 17 writes behind its output
// how: whole vectors of eight, also where fewer elements are left; what lies there belongs to others
// caught-by: out-of-bounds
// ops: torch.nn.functional.relu
// also: always
// cgins: relu(Tensor input) -> Tensor
#include "_rows.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  const int64_t count = cgins::numel(input);
  float* y = cgins::data<float>(out);
  for (int64_t i = 0; i < (count + 7) / 8 * 8; ++i) y[i] = i < count ? relu_of(at<float>(input, i)) : 0;
  return 0;
}
