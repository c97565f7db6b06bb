// cgins: gelu(Tensor input, str approximate='none') -> Tensor
#include <cstring>

#include "rows.h"

// One thread an element. Rows run along the last axis, so any strides will do.
template <typename T>
__global__ void gelu_elements(const T* input, Rows in, bool tanh_form, T* output, Rows out) {
  using Wide = cgins::accumulator<T>;
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i >= in.count * in.width) return;
  const int64_t row = i / in.width, column = i % in.width;
  const Wide x = Wide(input[in.start(row) + column * in.step]);
  const Wide inner = tanh_form ? tanh(Wide(0.7978845608028654) * (x + Wide(0.044715) * x * x * x))
                               : erf(x * Wide(0.7071067811865476));
  output[out.start(row) + column * out.step] = T(Wide(0.5) * x * (1 + inner));
}

extern "C" int gelu(const DLTensor* input, const char* approximate, int64_t approximate_len, DLTensor* out,
                    cgins_stream stream) {
  const bool tanh_form = approximate_len == 4 && std::memcmp(approximate, "tanh", 4) == 0;
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t blocks = (cgins::numel(input) + 255) / 256;
    gelu_elements<<<blocks, 256, 0, stream>>>(cgins::data<const T>(input), rows_along(input, -1), tanh_form,
                                              cgins::data<T>(out), rows_along(out, -1));
    CGINS_LAUNCH_CHECK();
    return 0;
  });
}
