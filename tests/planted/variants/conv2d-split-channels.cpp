// cgins: conv2d(Tensor input, Tensor weight, Tensor? bias=None, int[] stride=1, int[] padding=0,
//               int[] dilation=1, int groups=1) -> Tensor
// Even and odd channels are summed apart.
#include "windows.h"

struct Split {
  template <typename T>
  static CGINS_HOST_DEVICE Wide<T> of(const Convolution& conv, const T* x, Pixel pixel, const T* weight) {
    const int64_t places = conv.kernel_height * conv.kernel_width;
    Wide<T> sums[2] = {};
    for (int64_t k = 0; k < conv.taps(); ++k) {
      const Tap tap = conv.tap(k);
      sums[k / places % 2] += conv.read(x, pixel, tap) * Wide<T>(weight[tap.weight]);
    }
    return sums[0] + sums[1];
  }
};

extern "C" int conv2d(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, const int64_t* stride,
                      int64_t stride_len, const int64_t* padding, int64_t padding_len, const int64_t* dilation,
                      int64_t dilation_len, int64_t groups, DLTensor* out, cgins_stream stream) {
  return conv2d_by<Split>(input, weight, bias, stride, stride_len, padding, padding_len, dilation, dilation_len,
                       groups, out, stream);
}
