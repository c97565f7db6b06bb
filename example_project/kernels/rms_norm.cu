// cgins: rms_norm(Tensor x, Tensor weight, float eps=1e-6) -> Tensor
#include "reduce.cuh"
#include "rows.h"

// One block a row.
template <typename T>
__global__ void rms_norm_rows(const T* input, Rows in, const T* weight, double eps, T* output, Rows out) {
  using Wide = cgins::accumulator<T>;
  const T* x = input + in.start(blockIdx.x);
  T* y = output + out.start(blockIdx.x);
  Wide sum = 0;
  for (int64_t i = threadIdx.x; i < in.width; i += kThreads) sum += Wide(x[i * in.step]) * Wide(x[i * in.step]);
  const Wide scale = 1 / sqrt(block_sum(sum) / in.width + Wide(eps));
  for (int64_t i = threadIdx.x; i < in.width; i += kThreads)
    y[i * out.step] = T(Wide(x[i * in.step]) * scale * Wide(weight[i]));
}

extern "C" int rms_norm(const DLTensor* x, const DLTensor* weight, double eps, DLTensor* out,
                        cgins_stream stream) {
  CGINS_CHECK(x->ndim > 0, "x has no dimensions");
  if (check_rows(x) || check_types(x, {out}) || check_parameters(x, cgins::size(x, -1), {weight})) return 1;
  const Rows rows = rows_along(x, -1);
  if (check_grid(rows.count)) return 1;
  if (rows.count == 0) return 0;
  return cgins::dispatch_floating(x, [&](auto zero) {
    using T = decltype(zero);
    rms_norm_rows<<<rows.count, kThreads, 0, stream>>>(cgins::data<const T>(x), rows,
                                                       cgins::data<const T>(weight), eps,
                                                       cgins::data<T>(out), rows_along(out, -1));
    CGINS_LAUNCH_CHECK();
    return 0;
  });
}
