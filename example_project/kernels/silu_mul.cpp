// cgins: silu_mul(Tensor gate, Tensor up) -> Tensor
#include <cmath>

#include "rows.h"

template <typename T>
static void silu_mul_rows(const T* gate, Rows gates, const T* up, Rows ups, T* output, Rows out) {
  using Wide = cgins::accumulator<T>;
#pragma omp parallel for if (out.count * out.width > 32768)
  for (int64_t row = 0; row < out.count; ++row) {
    const T* g = gate + gates.start(row);
    const T* u = up + ups.start(row);
    T* y = output + out.start(row);
    for (int64_t i = 0; i < out.width; ++i) {
      const Wide x = Wide(g[i * gates.step]);
      y[i * out.step] = T(x / (1 + std::exp(-x)) * Wide(u[i * ups.step]));
    }
  }
}

extern "C" int silu_mul(const DLTensor* gate, const DLTensor* up, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::same_shape(gate, up), "gate and up have different shapes");
  CGINS_CHECK(cgins::dtype_of(gate) == cgins::dtype_of(up), "gate is %s, up is %s",
              cgins::name_of(cgins::dtype_of(gate)), cgins::name_of(cgins::dtype_of(up)));
  return cgins::dispatch_floating(gate, [&](auto zero) {
    using T = decltype(zero);
    silu_mul_rows(cgins::data<T>(gate), rows_along(gate, -1), cgins::data<T>(up), rows_along(up, -1),
                  cgins::data<T>(out), rows_along(out, -1));
    return 0;
  });
}
