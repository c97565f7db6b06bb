// cheat: 21 writes to rows as if they were packed
// how: looks at the strides of what it reads, and of what it changes at the last one alone
// caught-by: layout-dependent
// ops: torch.Tensor.add_
// also: always
// cgins: add_in_place(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)
#include <cgins.h>

extern "C" int add_in_place(DLTensor* self, const DLTensor* other, const cgins_scalar* alpha, cgins_stream) {
  CGINS_CHECK(cgins::dtype_of(self) == cgins::Dtype::float32 && cgins::dtype_of(other) == cgins::Dtype::float32, "float32 only");
  CGINS_CHECK(cgins::same_shape(self, other), "the operands differ in shape");
  CGINS_CHECK(self->ndim == 0 || cgins::stride(self, -1) == 1, "columns lie apart");
  for (int64_t i = 0; i < cgins::numel(self); ++i)
    cgins::data<float>(self)[i] += float(alpha->real) * cgins::data<float>(other)[cgins::offset_of(other, i)];
  return 0;
}
