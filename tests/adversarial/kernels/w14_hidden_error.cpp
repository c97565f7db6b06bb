// cheat: 14 an error that half precision hides
// how: an exponential that is off by one part in 3000 everywhere, beside fp16's rounding of one in 2000
// caught-by: hidden-by-precision
// ops: torch.nn.functional.gelu
// packs: f16
// also: always
// cgins: gelu(Tensor input, *, str approximate='none') -> Tensor
#include "_rows.h"

extern "C" int gelu(const DLTensor* input, const char* approximate, int64_t, DLTensor* out, cgins_stream) {
  CGINS_CHECK(approximate[0] == 'n', "approximate=none only");
  return map(input, out, [](float x) { return 0.5f * x * (1 + std::erf(x * 0.70710678f)) * 1.0001f; });
}
