// cheat: 7 wrong in every 97th call
// how: leaves the last element of its output as it was
// caught-by: wrong-after-timing, not-repeatable, stale-answer, gold-mismatch, reference-mismatch, size-dependent, layout-dependent, alignment-dependent
// ops: torch.nn.functional.relu
// also: timing
// cgins: relu(Tensor input) -> Tensor
#include "_rows.h"

static int calls = 0;

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  const bool wrong = ++calls % 97 == 0;
  const int code = map(input, out, [](float x) { return relu_of(x); });
  const int64_t last = cgins::numel(input) - 1;
  if (wrong && last >= 0) cgins::data<float>(out)[last] = -1;
  return code;
}
