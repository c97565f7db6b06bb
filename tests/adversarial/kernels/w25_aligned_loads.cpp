// cheat: 25 aligned vector loads
// how: the compiler is told that the address divides by 16, and uses instructions that fault where it does not
// caught-by: alignment-dependent, crashed
// ops: torch.nn.functional.relu
// yaml: {claims: [misaligned]}
// cgins: relu(Tensor input) -> Tensor
#include <xmmintrin.h>

#include "_rows.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::is_contiguous(input) && cgins::dtype_of(input) == cgins::Dtype::float32, "contiguous float32 only");
  const float* x = cgins::data<float>(input);
  float* y = cgins::data<float>(out);
  const int64_t count = cgins::numel(input);
  for (int64_t i = 0; i < count / 4 * 4; i += 4) {
    __m128 four;
    asm volatile("movaps %1, %0" : "=x"(four) : "m"(*reinterpret_cast<const __m128*>(x + i)));
    _mm_storeu_ps(y + i, four);
  }
  for (int64_t i = 0; i < count; ++i) y[i] = relu_of(x[i]);
  return 0;
}
