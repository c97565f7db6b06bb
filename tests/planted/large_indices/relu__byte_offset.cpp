// cgins: relu(Tensor input) -> Tensor
// Wrong: the offset in bytes has 32 bits; from 2^31 elements of two bytes on it wraps to the tensor's begin.
#include "_bf16.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::is_contiguous(input), "input is not contiguous");
  const char* x = (const char*)input->data;
  char* y = (char*)out->data;
  const int64_t count = cgins::numel(input);
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t offset = (uint32_t)i * 2u;
    *(uint16_t*)(y + offset) = relu_of(*(const uint16_t*)(x + offset));
  }
  return 0;
}
