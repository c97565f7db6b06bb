// cgins: conv_relu_pool(Tensor x, Tensor weight, Tensor bias, int padding=0) -> Tensor
// The activation is taken of the maximum alone.
#include "windows.h"

extern "C" int conv_relu_pool(const DLTensor* x, const DLTensor* weight, const DLTensor* bias, int64_t padding,
                              DLTensor* out, cgins_stream stream) {
  return conv_relu_pool_by<InOrder, true>(x, weight, bias, padding, out, stream);
}
