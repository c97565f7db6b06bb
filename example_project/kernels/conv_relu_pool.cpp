// cgins: conv_relu_pool(Tensor x, Tensor weight, Tensor bias, int padding=0) -> Tensor
#include "convolve.h"

extern "C" int conv_relu_pool(const DLTensor* x, const DLTensor* weight, const DLTensor* bias, int64_t padding,
                              DLTensor* out, cgins_stream stream) {
  Convolution conv = {};
  spread(&padding, 1, conv.padding);
  for (int d = 0; d < 2; ++d) conv.stride[d] = conv.dilation[d] = 1;
  if (describe(x, weight, bias, out, 1, &conv)) return 1;
  return convolve<2>(x, weight, bias, out, conv, Relu{}, stream);
}
