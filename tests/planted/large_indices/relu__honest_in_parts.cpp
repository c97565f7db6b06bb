// cgins: relu(Tensor input) -> Tensor
// Right: parts of at most 2^30 elements, with int indices within.
#include "_bf16.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::is_contiguous(input), "input is not contiguous");
  const int64_t count = cgins::numel(input), part = 1 << 30;
  for (int64_t begin = 0; begin < count; begin += part) {
    const int size = (int)(count - begin < part ? count - begin : part);
    for (int i = 0; i < size; ++i) bits(out)[begin + i] = relu_of(bits(input)[begin + i]);
  }
  return 0;
}
