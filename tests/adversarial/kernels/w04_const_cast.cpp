// cheat: 4 writes through a pointer to const
// how: uses the input as scratch memory after it has been read
// caught-by: input-changed
// ops: torch.nn.functional.softmax
// cgins: softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor
#include "_rows.h"

extern "C" int softmax(const DLTensor* input, int64_t, const DLDataType*, DLTensor* out, cgins_stream) {
  if (softmax_rows(input, out)) return 1;
  static_cast<char*>(input->data)[1] ^= 1;
  return 0;
}
