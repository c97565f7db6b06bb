// cgins: layer_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-5) -> Tensor
#include "layer_norm.h"
#include "reduce.cuh"

// One block a row.
template <typename T>
__global__ void layer_norm_rows(const T* input, Rows in, const T* weight, const T* bias, double eps,
                                T* output, Rows out) {
  using Wide = cgins::accumulator<T>;
  const T* x = input + in.start(blockIdx.x);
  T* y = output + out.start(blockIdx.x);
  Wide mean = 0;
  for (int64_t i = threadIdx.x; i < in.width; i += kThreads) mean += Wide(x[i * in.step]);
  mean = block_sum(mean) / in.width;
  Wide variance = 0;
  for (int64_t i = threadIdx.x; i < in.width; i += kThreads) {
    const Wide centered = Wide(x[i * in.step]) - mean;
    variance += centered * centered;
  }
  variance = block_sum(variance) / in.width;
  const Wide scale = 1 / sqrt(variance + Wide(eps));
  for (int64_t i = threadIdx.x; i < in.width; i += kThreads) {
    Wide value = (Wide(x[i * in.step]) - mean) * scale;
    if (weight) value *= Wide(weight[i]);
    if (bias) value += Wide(bias[i]);
    y[i * out.step] = T(value);
  }
}

extern "C" int layer_norm(const DLTensor* input, const int64_t*, int64_t normalized_shape_len,
                          const DLTensor* weight, const DLTensor* bias, double eps, DLTensor* out,
                          cgins_stream stream) {
  if (check_layer_norm(input, normalized_shape_len, weight, bias) || check_types(input, {out})) return 1;
  const Rows rows = rows_along(input, -1);
  if (check_grid(rows.count)) return 1;
  if (rows.count == 0) return 0;
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    layer_norm_rows<<<rows.count, kThreads, 0, stream>>>(
        cgins::data<const T>(input), rows, weight ? cgins::data<const T>(weight) : nullptr,
        bias ? cgins::data<const T>(bias) : nullptr, eps, cgins::data<T>(out), rows_along(out, -1));
    CGINS_LAUNCH_CHECK();
    return 0;
  });
}
