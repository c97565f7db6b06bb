// honest: in place, as the op is
// ops: torch.Tensor.add_
// packs: f32 f16 bf16
// cgins: add_(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)
#include "_sums.h"

extern "C" int add_(DLTensor* self, const DLTensor* other, const cgins_scalar* alpha, cgins_stream) {
  CGINS_CHECK(cgins::same_shape(self, other), "shapes differ");
  return cgins::dispatch_floating(self, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < cgins::numel(self); ++i)
      at<T>(self, i) = T(float(at<T>(self, i)) + float(alpha->real) * float(at<T>(other, i)));
    return 0;
  });
}
