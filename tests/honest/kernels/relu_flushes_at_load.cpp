// honest: what -ffast-math links: subnormal numbers are flushed as the library is loaded, once
// ops: torch.nn.functional.relu
// packs: f32
// cgins: relu(Tensor input) -> Tensor
#include <cstdint>

#include "_sums.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
__attribute__((constructor)) static void flush() { _mm_setcsr(_mm_getcsr() | 0x8040); }
#endif

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  for (int64_t i = 0; i < cgins::numel(input); ++i) {
    const float x = at<float>(input, i);
    at<float>(out, i) = x < 0 ? 0 : x;
  }
  return 0;
}
