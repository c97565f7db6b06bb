// cgins: conv2d(Tensor input, Tensor weight, Tensor? bias=None, int[] stride=1, int[] padding=0,
//               int[] dilation=1, int groups=1) -> Tensor
#include "convolve.h"

extern "C" int conv2d(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, const int64_t* stride,
                      int64_t stride_len, const int64_t* padding, int64_t padding_len, const int64_t* dilation,
                      int64_t dilation_len, int64_t groups, DLTensor* out, cgins_stream stream) {
  Convolution conv = {};
  spread(stride, stride_len, conv.stride);
  spread(padding, padding_len, conv.padding);
  spread(dilation, dilation_len, conv.dilation);
  if (describe(input, weight, bias, out, groups, &conv)) return 1;
  return convolve<1>(input, weight, bias, out, conv, Copy{}, stream);
}
