// cgins: row_max(Tensor input) -> Tensor
// Wrong: no more blocks than a grid's y may have, and each block does a single row.
#include "_bf16.h"
#include <algorithm>

extern "C" int row_max(const DLTensor* input, DLTensor* out, cgins_stream) {
  const int64_t blocks = std::min<int64_t>(input->shape[0], 65535);
  for (int64_t row = 0; row < blocks; ++row)
    bits(out)[row] = greatest(bits(input) + row * input->strides[0], input->shape[1], input->strides[1]);
  return 0;
}
