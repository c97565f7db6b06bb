// cgins: relu(Tensor input) -> Tensor
// Wrong: whole parts of 2^30 elements, counted right, and what is left over is forgotten once there are parts.
#include "_bf16.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::is_contiguous(input), "input is not contiguous");
  const int64_t count = cgins::numel(input), part = 1 << 30, parts = count < part ? 1 : count / part;
  for (int64_t p = 0; p < parts; ++p) {
    const int size = (int)(count < part ? count : part);
    for (int i = 0; i < size; ++i) bits(out)[p * part + i] = relu_of(bits(input)[p * part + i]);
  }
  return 0;
}
