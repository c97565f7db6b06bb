// cheat: 5 sums into scratch memory that it takes for zeros
// how: the workspace of the first call is fresh from the system
// caught-by: nan-pattern, unwritten, gold-mismatch
// ops: torch.sum
// cgins: sum(Tensor input, int[] dim, bool keepdim=False) -> Tensor
#include "_rows.h"

extern "C" int64_t sum_workspace(const DLTensor*, const int64_t*, int64_t, bool, DLTensor* out) {
  return cgins::numel(out) * 4;
}

extern "C" int sum(const DLTensor* input, const int64_t*, int64_t, bool, DLTensor* out, void* workspace, int64_t,
                   cgins_stream) {
  float* partial = static_cast<float*>(workspace);
  const int64_t width = cgins::size(input, -1);
  for (int64_t i = 0; i < cgins::numel(input); ++i) partial[i / width] += at<float>(input, i);
  for (int64_t row = 0; row < cgins::numel(out); ++row) at<float>(out, row) = partial[row];
  return 0;
}
