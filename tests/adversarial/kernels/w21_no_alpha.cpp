// cheat: 21 ignores a scalar argument
// how: every recorded call has alpha=1
// caught-by: argument-ignored
// ops: torch.add
// packs: plain
// cgins: add(Tensor input, Tensor other, *, Scalar alpha=1) -> Tensor
#include "_rows.h"

extern "C" int add(const DLTensor* input, const DLTensor* other, const cgins_scalar*, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::numel(input) == cgins::numel(other), "no broadcast");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < cgins::numel(out); ++i)
      at<T>(out, i) = T(float(at<T>(input, i)) + float(at<T>(other, i)));
    return 0;
  });
}
