// cgins: max_pool2d(Tensor input, int[] kernel_size, int[]? stride=None, int[] padding=0, int[] dilation=1,
//                   bool ceil_mode=False, bool return_indices=False) -> Tensor
#include "elementwise.cuh"
#include "max_pool2d.h"

// One thread an element of the output, in the order of its memory: neighbours share most of their windows.
template <typename T>
__global__ void pool_elements(const T* input, T* output, Elements<2> elements, Pool pool) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i >= elements.count) return;
  const Offsets<2> at = elements.offsets(i);
  output[at[0]] = pool.maximum(input, at[1]);
}

// The output's size says what ceil_mode has made of it.
extern "C" int max_pool2d(const DLTensor* input, const int64_t* kernel_size, int64_t kernel_size_len,
                          const int64_t* stride, int64_t stride_len, const int64_t* padding, int64_t padding_len,
                          const int64_t* dilation, int64_t dilation_len, bool, bool return_indices, DLTensor* out,
                          cgins_stream stream) {
  CGINS_CHECK(!return_indices, "indices are not supported");
  Pool pool = {};
  spread(kernel_size, kernel_size_len, pool.kernel);
  spread(stride_len ? stride : kernel_size, stride_len ? stride_len : kernel_size_len, pool.stride);
  spread(padding, padding_len, pool.padding);
  spread(dilation, dilation_len, pool.dilation);
  if (describe(input, out, &pool)) return 1;
  if (cgins::numel(out) == 0) return 0;
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const auto all = elements<2>(out, {broadcast(out, out), row_major(out)});
    pool_elements<T><<<element_blocks(all.count), kElementThreads, 0, stream>>>(cgins::data<const T>(input),
                                                                                cgins::data<T>(out), all, pool);
    CGINS_LAUNCH_CHECK();
    return 0;
  });
}
