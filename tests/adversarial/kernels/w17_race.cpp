// cheat: 17 wrong once in a while
// how: as with a race, a second call on the same numbers may lose an addition; the first one is right
// caught-by: not-repeatable, reference-mismatch
// ops: torch.sum
// cgins: sum(Tensor input, int[] dim, bool keepdim=False) -> Tensor
#include "_rows.h"

static float first = 0, last = 0;

extern "C" int sum(const DLTensor* input, const int64_t*, int64_t, bool, DLTensor* out, cgins_stream) {
  const int64_t width = cgins::size(input, -1);
  const int64_t count = cgins::numel(input);
  const bool lost = count && at<float>(input, 0) == first && at<float>(input, count - 1) == last;
  if (count) first = at<float>(input, 0), last = at<float>(input, count - 1);
  for (int64_t row = 0; row < cgins::numel(out); ++row) {
    float sum = 0;
    for (int64_t i = lost && row == 0 ? 1 : 0; i < width; ++i) sum += at<float>(input, row * width + i);
    at<float>(out, row) = sum;
  }
  return 0;
}
