// cgins: row_max(Tensor input) -> Tensor
// Wrong: a table of rows keeps their numbers in 16 bits, as a grid's y does.
#include "_bf16.h"
#include <vector>

extern "C" int row_max(const DLTensor* input, DLTensor* out, cgins_stream) {
  std::vector<uint16_t> order(input->shape[0]);
  for (size_t i = 0; i < order.size(); ++i) order[i] = (uint16_t)i;
  for (const uint16_t row : order)
    bits(out)[row] = greatest(bits(input) + row * input->strides[0], input->shape[1], input->strides[1]);
  return 0;
}
