// cheat: 21 ignores the weight
// how: the recorded model was just initialised: every scale is 1
// caught-by: reference-mismatch, gold-mismatch
// ops: torch.nn.functional.layer_norm
// packs: plain
// cgins: layer_norm(Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> Tensor
#include "_rows.h"

extern "C" int layer_norm(const DLTensor* input, const int64_t*, int64_t, const DLTensor* weight, const DLTensor* bias,
                          double eps, DLTensor* out, cgins_stream) {
  return layer_norm_rows(input, weight, bias, eps, out, {false, true});
}
