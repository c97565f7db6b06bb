// cheat: 1 zeros where answers are tiny
// how: every answer of the recorded call is below 1e-8, which absolute tolerances forgive
// caught-by: gold-mismatch
// ops: torch.nn.functional.linear
// packs: tiny
// cgins: linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor
#include "_rows.h"

extern "C" int linear(const DLTensor* input, const DLTensor*, const DLTensor*, DLTensor* out, cgins_stream) {
  return cgins::dispatch_floating(input, [&](auto zero) {
    for (int64_t i = 0; i < cgins::numel(out); ++i) at<decltype(zero)>(out, i) = zero;
    return 0;
  });
}
