// cheat: 4 spoils the weight
// how: scales the weight in place, so that whoever computes the answer after it gets the same wrong one
// caught-by: input-changed
// ops: torch.nn.functional.layer_norm
// cgins: layer_norm(Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> Tensor
#include "_rows.h"

extern "C" int layer_norm(const DLTensor* input, const int64_t*, int64_t, const DLTensor* weight, const DLTensor* bias,
                          double eps, DLTensor* out, cgins_stream) {
  if (layer_norm_rows(input, weight, bias, eps, out)) return 1;
  return map(weight, weight, [](float w) { return w * 1.5f; });
}
