// cheat: 17 writes behind its scratch memory
// how: asks for one element less than it uses
// caught-by: out-of-bounds
// ops: torch.sum
// cgins: sum(Tensor input, int[] dim, bool keepdim=False) -> Tensor
#include "_rows.h"

extern "C" int64_t sum_workspace(const DLTensor*, const int64_t*, int64_t, bool, DLTensor* out) {
  return (cgins::numel(out) - 1) * 4;
}

extern "C" int sum(const DLTensor* input, const int64_t*, int64_t, bool, DLTensor* out, void* workspace, int64_t,
                   cgins_stream) {
  float* partial = static_cast<float*>(workspace);
  const int64_t width = cgins::size(input, -1);
  for (int64_t row = 0; row < cgins::numel(out); ++row) {
    partial[row] = 0;
    for (int64_t i = 0; i < width; ++i) partial[row] += at<float>(input, row * width + i);
    at<float>(out, row) = partial[row];
  }
  return 0;
}
