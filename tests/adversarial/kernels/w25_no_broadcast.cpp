// cheat: 25 takes the other operand for as dense as the first
// how: no recorded addition repeats a row
// caught-by: layout-dependent, size-dependent
// ops: torch.add
// cgins: add(Tensor input, Tensor other, *, Scalar alpha=1) -> Tensor
#include "_rows.h"

extern "C" int add(const DLTensor* input, const DLTensor* other, const cgins_scalar* alpha, DLTensor* out, cgins_stream) {
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < cgins::numel(out); ++i)
      at<T>(out, i) = T(float(at<T>(input, i)) + float(alpha->real) * float(cgins::data<T>(other)[i]));
    return 0;
  });
}
