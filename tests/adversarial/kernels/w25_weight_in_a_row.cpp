// cheat: 25 reads a weight as if it had no gaps
// how: refuses an input with gaps, and says nothing of the weight
// caught-by: layout-dependent
// ops: torch.nn.functional.layer_norm
// packs: f32
// cgins: layer_norm(Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> Tensor
#include "_rows.h"

extern "C" int layer_norm(const DLTensor* input, const int64_t*, int64_t axes, const DLTensor* weight,
                          const DLTensor* bias, double eps, DLTensor* out, cgins_stream) {
  CGINS_CHECK(axes == 1 && cgins::is_contiguous(input), "one axis, contiguous input only");
  int64_t step[1] = {1};
  DLTensor dense = weight ? *weight : DLTensor{};
  dense.strides = step;
  return layer_norm_rows(input, weight ? &dense : nullptr, bias, eps, out);
}
