// cgins: relu(Tensor input) -> Tensor
// Right: it says how much it takes.
#include "_bf16.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::numel(input) <= INT32_MAX, "at most 2^31 - 1 elements");
  CGINS_CHECK(cgins::is_contiguous(input), "input is not contiguous");
  const int count = (int)cgins::numel(input);
  for (int i = 0; i < count; ++i) bits(out)[i] = relu_of(bits(input)[i]);
  return 0;
}
