// cgins: max_pool2d(Tensor input, int[] kernel_size, int[]? stride=None, int[] padding=0, int[] dilation=1,
//                   bool ceil_mode=False, bool return_indices=False) -> Tensor
#include "elementwise.h"
#include "max_pool2d.h"

// The output's size says what ceil_mode has made of it.
extern "C" int max_pool2d(const DLTensor* input, const int64_t* kernel_size, int64_t kernel_size_len,
                          const int64_t* stride, int64_t stride_len, const int64_t* padding, int64_t padding_len,
                          const int64_t* dilation, int64_t dilation_len, bool, bool return_indices, DLTensor* out,
                          cgins_stream) {
  CGINS_CHECK(!return_indices, "indices are not supported");
  Pool pool = {};
  spread(kernel_size, kernel_size_len, pool.kernel);
  spread(stride_len ? stride : kernel_size, stride_len ? stride_len : kernel_size_len, pool.stride);
  spread(padding, padding_len, pool.padding);
  spread(dilation, dilation_len, pool.dilation);
  if (describe(input, out, &pool)) return 1;
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const T* x = cgins::data<T>(input);
    T* y = cgins::data<T>(out);
    for_each(elements<2>(out, {broadcast(out, out), row_major(out)}),
             [=](const Offsets<2>& at) { y[at[0]] = pool.maximum(x, at[1]); });
    return 0;
  });
}
