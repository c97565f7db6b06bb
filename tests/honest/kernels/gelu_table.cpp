// honest: a table of constants that is filled at the first call
// ops: torch.nn.functional.gelu
// packs: f32 f16 bf16
// cgins: gelu(Tensor input, *, str approximate='none') -> Tensor
#include <mutex>

#include "_sums.h"

static double coefficients[2];
static std::once_flag filled;

extern "C" int gelu(const DLTensor* input, const char* approximate, int64_t approximate_len, DLTensor* out,
                    cgins_stream) {
  CGINS_CHECK(approximate_len == 4 && approximate[0] == 'n', "the exact form only");
  std::call_once(filled, [] {
    coefficients[0] = 0.5;
    coefficients[1] = std::sqrt(0.5);
  });
  return map(input, out,
             [](float x) { return float(x * (coefficients[0] * std::erfc(-double(x) * coefficients[1]))); });
}
