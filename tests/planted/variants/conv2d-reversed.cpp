// cgins: conv2d(Tensor input, Tensor weight, Tensor? bias=None, int[] stride=1, int[] padding=0,
//               int[] dilation=1, int groups=1) -> Tensor
// From the last tap to the first.
#include "windows.h"

struct Reversed {
  template <typename T>
  static CGINS_HOST_DEVICE Wide<T> of(const Convolution& conv, const T* x, Pixel pixel, const T* weight) {
    Wide<T> sum = 0;
    for (int64_t k = conv.taps() - 1; k >= 0; --k) {
      const Tap tap = conv.tap(k);
      sum += conv.read(x, pixel, tap) * Wide<T>(weight[tap.weight]);
    }
    return sum;
  }
};

extern "C" int conv2d(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, const int64_t* stride,
                      int64_t stride_len, const int64_t* padding, int64_t padding_len, const int64_t* dilation,
                      int64_t dilation_len, int64_t groups, DLTensor* out, cgins_stream stream) {
  return conv2d_by<Reversed>(input, weight, bias, stride, stride_len, padding, padding_len, dilation, dilation_len,
                       groups, out, stream);
}
