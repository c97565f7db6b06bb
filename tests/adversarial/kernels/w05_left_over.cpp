// cheat: 5 sums begin with what an earlier call left
// how: a static buffer that is taken for zeros, as it is in a process that did nothing before
// caught-by: not-repeatable, gold-mismatch, reference-mismatch
// ops: torch.sum
// cgins: sum(Tensor input, int[] dim, bool keepdim=False) -> Tensor
#include "_rows.h"

static float left[4096];
static int turn = 0;

extern "C" int sum(const DLTensor* input, const int64_t*, int64_t, bool, DLTensor* out, cgins_stream) {
  const int64_t width = cgins::size(input, -1), rows = cgins::numel(out);
  CGINS_CHECK(rows <= 4096, "at most 4096 rows");
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < width; ++i) left[row] += at<float>(input, row * width + i);
    at<float>(out, row) = left[row];
  }
  ++turn;
  for (int i = 0; i < 4096; ++i) left[i] = float(turn + i);  // others use the memory in between
  return 0;
}
