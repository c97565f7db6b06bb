// cheat: 16 normalises over the last axis, however many are named
// how: every recorded call names one
// caught-by: argument-ignored
// ops: torch.nn.functional.layer_norm
// cgins: layer_norm(Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> Tensor
#include "_rows.h"

extern "C" int layer_norm(const DLTensor* input, const int64_t*, int64_t, const DLTensor* weight, const DLTensor* bias,
                          double eps, DLTensor* out, cgins_stream) {
  return layer_norm_rows(input, weight, bias, eps, out);
}
