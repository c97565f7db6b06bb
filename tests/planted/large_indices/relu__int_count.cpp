// cgins: relu(Tensor input) -> Tensor
// Wrong: the number of elements is an int, which is negative from 2^31 on, and nothing is written.
#include "_bf16.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::is_contiguous(input), "input is not contiguous");
  const int count = (int)cgins::numel(input);
  for (int i = 0; i < count; ++i) bits(out)[i] = relu_of(bits(input)[i]);
  return 0;
}
