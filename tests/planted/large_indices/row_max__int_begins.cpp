// cgins: row_max(Tensor input) -> Tensor
// Wrong: a table of ints says where rows begin.
#include "_bf16.h"
#include <vector>

extern "C" int row_max(const DLTensor* input, DLTensor* out, cgins_stream) {
  std::vector<int> begins;
  for (int64_t row = 0; row < input->shape[0]; ++row) begins.push_back((int)(row * input->strides[0]));
  for (size_t row = 0; row < begins.size(); ++row)
    bits(out)[row] = greatest(bits(input) + begins[row], input->shape[1], input->strides[1]);
  return 0;
}
