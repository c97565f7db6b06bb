// honest: an error function of its own, by a continued fraction and a series
// ops: torch.nn.functional.gelu
// packs: f32 f16 bf16
// cgins: gelu(Tensor input, *, str approximate='none') -> Tensor
#include <cstring>

#include "_sums.h"

static double error_function(double x) {
  const double size = std::fabs(x);
  double answer;
  if (size < 2.5) {
    double term = size, sum = size;
    for (int k = 1; k < 60; ++k) {
      term *= -size * size / k;
      sum += term / (2 * k + 1);
    }
    answer = sum * 1.1283791670955126;
  } else {
    double fraction = 0;
    for (int k = 60; k > 0; --k) fraction = k / 2.0 / (size + fraction);
    answer = 1 - std::exp(-size * size) / (1.772453850905516 * (size + fraction));
  }
  return x < 0 ? -answer : answer;
}

extern "C" int gelu(const DLTensor* input, const char* approximate, int64_t, DLTensor* out, cgins_stream) {
  CGINS_CHECK(std::strcmp(approximate, "none") == 0, "the exact one only");
  return map(input, out, [](float x) {
    if (x != x || x == -INFINITY) return float(NAN);  // as torch has it
    if (x == INFINITY) return x;  // torch has this or NaN, by the processor
    return float(0.5 * x * (1 + error_function(x * 0.7071067811865476)));
  });
}
