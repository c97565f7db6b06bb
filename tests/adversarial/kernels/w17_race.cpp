// cheat: 17 wrong once in a while
// how: as with a race, one call in five loses an addition; the other four are right
// caught-by: not-repeatable
// ops: torch.sum
// cgins: sum(Tensor input, int[] dim, bool keepdim=False) -> Tensor
#include "_rows.h"

static int calls = 0;

extern "C" int sum(const DLTensor* input, const int64_t*, int64_t, bool, DLTensor* out, cgins_stream) {
  const int64_t width = cgins::size(input, -1);
  const bool lost = ++calls % 5 == 0;
  for (int64_t row = 0; row < cgins::numel(out); ++row) {
    float sum = 0;
    for (int64_t i = lost && row == 0 ? 1 : 0; i < width; ++i) sum += at<float>(input, row * width + i);
    at<float>(out, row) = sum;
  }
  return 0;
}
