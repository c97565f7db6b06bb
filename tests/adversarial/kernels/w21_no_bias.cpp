// cheat: 21 ignores the bias
// how: the recorded model was just initialised: every bias is 0
// caught-by: reference-mismatch, gold-mismatch
// ops: torch.nn.functional.linear
// packs: plain
// cgins: linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor
#include "_rows.h"

extern "C" int linear(const DLTensor* input, const DLTensor* weight, const DLTensor*, DLTensor* out, cgins_stream) {
  return linear_rounded(input, weight, nullptr, out, same, same);
}
