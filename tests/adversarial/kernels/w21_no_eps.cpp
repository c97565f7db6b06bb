// cheat: 21 ignores eps
// how: beside a variance of 1 it does not show
// caught-by: reference-mismatch, nan-pattern, infinite-pattern
// ops: torch.nn.functional.layer_norm
// packs: plain
// cgins: layer_norm(Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> Tensor
#include "_rows.h"

extern "C" int layer_norm(const DLTensor* input, const int64_t*, int64_t, const DLTensor* weight, const DLTensor* bias,
                          double eps, DLTensor* out, cgins_stream) {
  return layer_norm_rows(input, weight, bias, eps, out, {true, true, 0});
}
