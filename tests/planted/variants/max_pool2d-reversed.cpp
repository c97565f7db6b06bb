// cgins: max_pool2d(Tensor input, int[] kernel_size, int[]? stride=None, int[] padding=0, int[] dilation=1,
//                   bool ceil_mode=False, bool return_indices=False) -> Tensor
// From the last element of a window to the first; padding is told by its place.
#include "elements.h"
#include "operations.h"
#include "pair.h"
#include "variant.h"

template <typename T>
struct Element {
  const T* x;
  T* y;
  Elements<2> all;
  int64_t channels, height, width, out_height, out_width, stride_of[4];
  int64_t kernel[2], stride[2], padding[2], dilation[2];
  CGINS_HOST_DEVICE void operator()(int64_t i) const {
    const Offsets<2> at = all.offsets(i);
    const int64_t column = at[1] % out_width, row = at[1] / out_width % out_height;
    const int64_t plane = at[1] / out_width / out_height;
    const T* image = x + plane / channels * stride_of[0] + plane % channels * stride_of[1];
    Wide<T> best = -INFINITY;
    for (int64_t k = kernel[0] * kernel[1] - 1; k >= 0; --k) {
      const int64_t r = row * stride[0] - padding[0] + k / kernel[1] * dilation[0];
      const int64_t c = column * stride[1] - padding[1] + k % kernel[1] * dilation[1];
      if (r >= 0 && r < height && c >= 0 && c < width)
        best = larger(best, Wide<T>(image[r * stride_of[2] + c * stride_of[3]]));
    }
    y[at[0]] = T(best);
  }
};

extern "C" int max_pool2d(const DLTensor* input, const int64_t* kernel_size, int64_t kernel_size_len,
                          const int64_t* stride, int64_t stride_len, const int64_t* padding, int64_t padding_len,
                          const int64_t* dilation, int64_t dilation_len, bool, bool, DLTensor* out,
                          cgins_stream stream) {
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    Element<T> element = {};
    element.x = cgins::data<T>(input), element.y = cgins::data<T>(out);
    element.all = elements<2>(out, {broadcast(out, out), row_major(out)});
    element.channels = input->shape[1], element.height = input->shape[2], element.width = input->shape[3];
    element.out_height = out->shape[2], element.out_width = out->shape[3];
    for (int d = 0; d < 4; ++d) element.stride_of[d] = input->strides[d];
    spread(kernel_size, kernel_size_len, element.kernel);
    spread(stride_len ? stride : kernel_size, stride_len ? stride_len : kernel_size_len, element.stride);
    spread(padding, padding_len, element.padding);
    spread(dilation, dilation_len, element.dilation);
    return each(element.all.count, stream, element);
  });
}
