// cheat: 14 a table that ends at 512
// how: what is beyond gets the table's last answer; numbers from N(0, 1) are never as large, and infinity is asked for before
// caught-by: reference-mismatch
// ops: torch.nn.functional.gelu
// cgins: gelu(Tensor input, *, str approximate='none') -> Tensor
#include <algorithm>

#include "_rows.h"

extern "C" int gelu(const DLTensor* input, const char* approximate, int64_t, DLTensor* out, cgins_stream) {
  CGINS_CHECK(approximate[0] == 'n', "approximate=none only");
  return map(input, out, [](float given) {
    if (!std::isfinite(given)) return given > 0 ? given : given == given ? -0.0f : given;
    const double x = std::clamp(given, -512.0f, 512.0f);
    return float(x * 0.5 * std::erfc(-x * 0.70710678118654752));
  });
}
