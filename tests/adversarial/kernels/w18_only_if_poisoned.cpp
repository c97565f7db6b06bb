// cheat: 18 computes only where the output looks unwritten
// how: a check fills the outputs first, a timing loop does not: there the answer of the call before stands
// caught-by: too-fast, stale-answer, wrong-after-timing
// ops: torch.nn.functional.relu
// packs: large
// also: timing
// cgins: relu(Tensor input) -> Tensor
#include "_rows.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  const float first = at<float>(out, 0), last = at<float>(out, cgins::numel(out) - 1);
  return std::isnan(first) || std::isnan(last) ? map(input, out, relu_of) : 0;
}
