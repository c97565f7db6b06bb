// cheat: 25 all rows at one stride
// how: row r at r times the stride of the last axis but one, as of a matrix however it lies; a slice of a batch, or heads that were transposed, lie otherwise, and what it reads there in their place may change
// caught-by: layout-dependent, not-repeatable
// ops: torch.nn.functional.softmax
// also: always
// cgins: softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor
#include "_rows.h"

extern "C" int softmax(const DLTensor* input, int64_t dim, const DLDataType* dtype, DLTensor* out, cgins_stream) {
  CGINS_CHECK(!dtype && (dim == -1 || dim == input->ndim - 1), "the last axis only");
  const auto flat = [](const DLTensor* tensor, int64_t* shape, int64_t* strides) {
    DLTensor made = *tensor;
    shape[1] = cgins::size(tensor, -1), strides[1] = cgins::stride(tensor, -1);
    shape[0] = shape[1] ? cgins::numel(tensor) / shape[1] : 0;
    strides[0] = tensor->ndim > 1 ? cgins::stride(tensor, -2) : shape[1];
    made.ndim = 2, made.shape = shape, made.strides = strides;
    return made;
  };
  int64_t shapes[4], strides[4];
  const DLTensor x = flat(input, shapes, strides), y = flat(out, shapes + 2, strides + 2);
  return softmax_rows(&x, &y);
}
