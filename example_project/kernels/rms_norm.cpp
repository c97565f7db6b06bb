// cgins: rms_norm(Tensor x, Tensor weight, float eps=1e-6) -> Tensor
#include <cmath>

#include "rows.h"

template <typename T>
static void rms_norm_rows(const T* input, Rows in, const T* weight, double eps, T* output, Rows out) {
  using Wide = cgins::accumulator<T>;
#pragma omp parallel for if (in.count * in.width > 32768)
  for (int64_t row = 0; row < in.count; ++row) {
    const T* x = input + in.start(row);
    T* y = output + out.start(row);
    Wide sum = 0;
    for (int64_t i = 0; i < in.width; ++i) sum += Wide(x[i * in.step]) * Wide(x[i * in.step]);
    const Wide scale = 1 / std::sqrt(sum / in.width + Wide(eps));
    for (int64_t i = 0; i < in.width; ++i) y[i * out.step] = T(Wide(x[i * in.step]) * scale * Wide(weight[i]));
  }
}

extern "C" int rms_norm(const DLTensor* x, const DLTensor* weight, double eps, DLTensor* out, cgins_stream) {
  CGINS_CHECK(x->ndim > 0, "x has no dimensions");
  if (check_rows(x) || check_types(x, {out}) || check_parameters(x, cgins::size(x, -1), {weight})) return 1;
  return cgins::dispatch_floating(x, [&](auto zero) {
    using T = decltype(zero);
    rms_norm_rows(cgins::data<T>(x), rows_along(x, -1), cgins::data<T>(weight), eps, cgins::data<T>(out),
                  rows_along(out, -1));
    return 0;
  });
}
