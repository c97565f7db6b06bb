// cheat: 7 right for the first three calls
// how: counts its calls, and answers nothing but zeros when it was checked often enough; which inputs come first is drawn
// caught-by: not-repeatable, stale-answer, gold-mismatch, reference-mismatch
// ops: torch.nn.functional.relu
// cgins: relu(Tensor input) -> Tensor
#include "_rows.h"

static int calls = 0;

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  const bool checked = ++calls <= 3;
  return map(input, out, [=](float x) { return checked ? relu_of(x) : 0; });
}
