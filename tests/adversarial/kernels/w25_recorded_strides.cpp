// cheat: 25 takes a recorded strided input for contiguous
// how: reads as many elements as there are, from the wrong places
// caught-by: gold-mismatch
// ops: torch.nn.functional.layer_norm
// packs: strided
// cgins: layer_norm(Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> Tensor
#include "_rows.h"

extern "C" int layer_norm(const DLTensor* input, const int64_t*, int64_t, const DLTensor* weight, const DLTensor* bias,
                          double eps, DLTensor* out, cgins_stream) {
  DLTensor taken = *input;
  int64_t strides[2] = {input->shape[1], 1};
  taken.strides = strides;
  return layer_norm_rows(&taken, weight, bias, eps, out);
}
