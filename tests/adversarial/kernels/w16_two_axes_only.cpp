// cheat: 16 knows matrices only
// how: takes what has three axes for its first matrix
// caught-by: size-dependent
// ops: torch.nn.functional.softmax
// cgins: softmax(Tensor input, int dim) -> Tensor
#include "_rows.h"

extern "C" int softmax(const DLTensor* input, int64_t dim, DLTensor* out, cgins_stream) {
  CGINS_CHECK(dim == -1 || dim == input->ndim - 1, "the last axis only");
  DLTensor first = *input, answer = *out;
  if (input->ndim > 2) {
    first.ndim = answer.ndim = 2;
    first.shape += input->ndim - 2, first.strides += input->ndim - 2;
    answer.shape += input->ndim - 2, answer.strides += input->ndim - 2;
  }
  return softmax_rows(&first, &answer);
}
