// cgins: gelu_backward(Tensor grad_output, Tensor input, str approximate='none') -> Tensor
#include <cmath>
#include <cstring>

#include "rows.h"

// Derivative of x · Φ(x): Φ(x) + x · φ(x), or that of its tanh form.
template <typename Wide>
static Wide slope(Wide x, bool tanh_form) {
  if (!tanh_form) {
    const Wide cdf = Wide(0.5) * (1 + std::erf(x * Wide(M_SQRT1_2)));
    return cdf + x * std::exp(Wide(-0.5) * x * x) * Wide(0.5 * M_2_SQRTPI * M_SQRT1_2);
  }
  const Wide cubic = Wide(0.044715) * x * x;
  const Wide inner = std::tanh(Wide(M_2_SQRTPI * M_SQRT1_2) * (x + x * cubic));
  return Wide(0.5) * (1 + inner) +
         Wide(0.5) * x * (1 - inner * inner) * Wide(M_2_SQRTPI * M_SQRT1_2) * (1 + 3 * cubic);
}

template <typename T>
static void gelu_backward_rows(const T* grad, Rows grads, const T* input, Rows in, bool tanh_form, T* output,
                               Rows out) {
  using Wide = cgins::accumulator<T>;
#pragma omp parallel for if (in.count * in.width > 32768)
  for (int64_t row = 0; row < in.count; ++row) {
    const T* g = grad + grads.start(row);
    const T* x = input + in.start(row);
    T* y = output + out.start(row);
    for (int64_t i = 0; i < in.width; ++i)
      y[i * out.step] = T(Wide(g[i * grads.step]) * slope(Wide(x[i * in.step]), tanh_form));
  }
}

extern "C" int gelu_backward(const DLTensor* grad_output, const DLTensor* input, const char* approximate,
                             int64_t approximate_len, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::dtype_of(grad_output) == cgins::dtype_of(input), "the gradient is %s, the input %s",
              cgins::name_of(cgins::dtype_of(grad_output)), cgins::name_of(cgins::dtype_of(input)));
  const bool tanh_form = approximate_len == 4 && std::memcmp(approximate, "tanh", 4) == 0;
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    gelu_backward_rows(cgins::data<T>(grad_output), rows_along(grad_output, -1), cgins::data<T>(input),
                       rows_along(input, -1), tanh_form, cgins::data<T>(out), rows_along(out, -1));
    return 0;
  });
}
