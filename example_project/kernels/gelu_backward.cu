// cgins: gelu_backward(Tensor grad_output, Tensor input, str approximate='none') -> Tensor
#include <cstring>

#include "reduce.cuh"
#include "rows.h"

// Derivative of x · Φ(x): Φ(x) + x · φ(x), or that of its tanh form.
template <typename Wide>
__device__ Wide slope(Wide x, bool tanh_form) {
  if (!tanh_form) {
    const Wide cdf = Wide(0.5) * (1 + erf(x * Wide(0.7071067811865476)));
    return cdf + x * exp(Wide(-0.5) * x * x) * Wide(0.3989422804014327);
  }
  const Wide cubic = Wide(0.044715) * x * x;
  const Wide inner = tanh(Wide(0.7978845608028654) * (x + x * cubic));
  return Wide(0.5) * (1 + inner) +
         Wide(0.5) * x * (1 - inner * inner) * Wide(0.7978845608028654) * (1 + 3 * cubic);
}

// One block a row.
template <typename T>
__global__ void gelu_backward_rows(const T* grad, Rows grads, const T* input, Rows in, bool tanh_form,
                                   T* output, Rows out) {
  using Wide = cgins::accumulator<T>;
  const T* g = grad + grads.start(blockIdx.x);
  const T* x = input + in.start(blockIdx.x);
  T* y = output + out.start(blockIdx.x);
  for (int64_t i = threadIdx.x; i < in.width; i += kThreads)
    y[i * out.step] = T(Wide(g[i * grads.step]) * slope(Wide(x[i * in.step]), tanh_form));
}

extern "C" int gelu_backward(const DLTensor* grad_output, const DLTensor* input, const char* approximate,
                             int64_t approximate_len, DLTensor* out, cgins_stream stream) {
  CGINS_CHECK(cgins::dtype_of(grad_output) == cgins::dtype_of(input), "the gradient is %s, the input %s",
              cgins::name_of(cgins::dtype_of(grad_output)), cgins::name_of(cgins::dtype_of(input)));
  const bool tanh_form = approximate_len == 4 && std::memcmp(approximate, "tanh", 4) == 0;
  const Rows rows = rows_along(input, -1);
  if (rows.count == 0) return 0;
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    gelu_backward_rows<<<rows.count, kThreads, 0, stream>>>(
        cgins::data<const T>(grad_output), rows_along(grad_output, -1), cgins::data<const T>(input), rows,
        tanh_form, cgins::data<T>(out), rows_along(out, -1));
    CGINS_LAUNCH_CHECK();
    return 0;
  });
}
