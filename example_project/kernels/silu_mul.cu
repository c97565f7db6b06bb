// cgins: silu_mul(Tensor gate, Tensor up) -> Tensor
#include "reduce.cuh"
#include "rows.h"

// One block a row.
template <typename T>
__global__ void silu_mul_rows(const T* gate, Rows gates, const T* up, Rows ups, T* output, Rows out) {
  using Wide = cgins::accumulator<T>;
  const T* g = gate + gates.start(blockIdx.x);
  const T* u = up + ups.start(blockIdx.x);
  T* y = output + out.start(blockIdx.x);
  for (int64_t i = threadIdx.x; i < out.width; i += kThreads) {
    const Wide x = Wide(g[i * gates.step]);
    y[i * out.step] = T(x / (1 + exp(-x)) * Wide(u[i * ups.step]));
  }
}

extern "C" int silu_mul(const DLTensor* gate, const DLTensor* up, DLTensor* out, cgins_stream stream) {
  CGINS_CHECK(cgins::same_shape(gate, up), "gate and up have different shapes");
  CGINS_CHECK(cgins::dtype_of(gate) == cgins::dtype_of(up), "gate is %s, up is %s",
              cgins::name_of(cgins::dtype_of(gate)), cgins::name_of(cgins::dtype_of(up)));
  const Rows rows = rows_along(out, -1);
  if (rows.count == 0) return 0;
  return cgins::dispatch_floating(gate, [&](auto zero) {
    using T = decltype(zero);
    silu_mul_rows<<<rows.count, kThreads, 0, stream>>>(cgins::data<const T>(gate), rows_along(gate, -1),
                                                       cgins::data<const T>(up), rows_along(up, -1),
                                                       cgins::data<T>(out), rows);
    CGINS_LAUNCH_CHECK();
    return 0;
  });
}
