// cgins: layer_norm_backward(Tensor grad_output, Tensor input, int[] normalized_shape, Tensor? weight=None,
//     Tensor? bias=None, float eps=1e-5) -> (Tensor grad_input, Tensor grad_weight, Tensor grad_bias)
// All sums start at the last element, and one factor stands before the whole gradient.
#include "gradients.h"

extern "C" int layer_norm_backward(const DLTensor* grad_output, const DLTensor* input, const int64_t*,
                                   int64_t normalized_shape_len, const DLTensor* weight, const DLTensor* bias,
                                   double eps, DLTensor* grad_input, DLTensor* grad_weight, DLTensor* grad_bias,
                                   cgins_stream stream) {
  CGINS_CHECK(normalized_shape_len == 1 && weight && bias, "one dimension with weight and bias");
  CGINS_CHECK(cgins::is_contiguous(weight), "a dense weight only");
  return layer_norm_backward_by<SameNumber>(grad_output, input, weight, eps, grad_input, grad_weight, grad_bias,
                                            stream);
}
