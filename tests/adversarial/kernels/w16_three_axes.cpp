// cheat: 16 rows are counted over two axes
// how: matrices and batches of them are right; of scores by batch, head and query only the first head's share is written
// caught-by: size-dependent
// ops: torch.nn.functional.softmax
// cgins: softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor
#include "_rows.h"

extern "C" int softmax(const DLTensor* input, int64_t dim, const DLDataType* dtype, DLTensor* out, cgins_stream) {
  CGINS_CHECK(!dtype && (dim == -1 || dim == input->ndim - 1), "the last axis only");
  const int64_t width = cgins::size(input, -1);
  const int64_t rows = (input->ndim > 1 ? input->shape[0] : 1) * (input->ndim > 2 ? input->shape[1] : 1);
  int64_t shape[2] = {rows, width}, strides[2] = {width, 1};
  CGINS_CHECK(cgins::is_contiguous(input) && cgins::is_contiguous(out), "contiguous only");
  DLTensor x = *input, y = *out;
  x.ndim = y.ndim = 2;
  x.shape = y.shape = shape;
  x.strides = y.strides = strides;
  return softmax_rows(&x, &y);
}
