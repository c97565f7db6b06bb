// cheat: 25 broadcasts by the remainder of the index
// how: right for one row beside many, and wrong for one column; no recorded addition repeats anything
// caught-by: size-dependent
// ops: torch.add
// cgins: add(Tensor input, Tensor other, *, Scalar alpha=1) -> Tensor
#include "_rows.h"

extern "C" int add(const DLTensor* input, const DLTensor* other, const cgins_scalar* alpha, DLTensor* out, cgins_stream) {
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t left = cgins::numel(input), right = cgins::numel(other);
    for (int64_t i = 0; i < cgins::numel(out); ++i)
      at<T>(out, i) = T(float(at<T>(input, i % left)) + float(alpha->real) * float(at<T>(other, i % right)));
    return 0;
  });
}
