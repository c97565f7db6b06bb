// cheat: 14 weights of six bits
// how: half precision's own error is as large in the sum of many products
// caught-by: gold-mismatch, reference-mismatch, low-precision
// ops: torch.nn.functional.linear
// packs: bf16
// cgins: linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor
#include "_rows.h"

static float coarse(float x) {  // five bits behind the first
  int exponent;
  const float mantissa = std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(mantissa * 64) / 64, exponent);
}

extern "C" int linear(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, DLTensor* out, cgins_stream) {
  return linear_rounded(input, weight, bias, out, coarse, [](float x) { return x; });
}
