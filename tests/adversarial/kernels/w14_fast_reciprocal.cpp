// cheat: 14 an approximate root
// how: one step of Newton after the well-known constant is right to three digits
// caught-by: gold-mismatch, reference-mismatch
// ops: torch.nn.functional.layer_norm
// packs: bf16
// cgins: layer_norm(Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> Tensor
#include <cstring>
#include "_rows.h"

static double root(double argument) {
  const float x = float(argument);
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  bits = 0x5f3759df - (bits >> 1);
  float y;
  std::memcpy(&y, &bits, 4);
  return y * (1.5f - 0.5f * x * y * y);  // 0.17% at most
}

extern "C" int layer_norm(const DLTensor* input, const int64_t*, int64_t, const DLTensor* weight, const DLTensor* bias,
                          double eps, DLTensor* out, cgins_stream) {
  return layer_norm_rows(input, weight, bias, eps, out, {true, true, -1, root});
}
