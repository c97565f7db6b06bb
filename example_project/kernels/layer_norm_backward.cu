// cgins: layer_norm_backward(Tensor grad_output, Tensor input, int[] normalized_shape, Tensor? weight=None,
//     Tensor? bias=None, float eps=1e-5) -> (Tensor grad_input, Tensor grad_weight, Tensor grad_bias)
#include "layer_norm.h"
#include "reduce.cuh"

// Mean and 1 / σ of a row: kept in scratch memory for the sums over rows.
template <typename Wide>
struct Moments {
  Wide mean, scale;
};

// One block a row. With x̂ = (x - mean) / σ and g = grad · weight, both of the row:
//   grad_input = (g - mean(g) - x̂ · mean(g · x̂)) / σ
template <typename T, typename Wide>
__global__ void input_rows(const T* grad, Rows grads, const T* input, Rows in, const T* weight, double eps,
                           T* grad_input, Rows out, Moments<Wide>* moments) {
  const T* x = input + in.start(blockIdx.x);
  const T* dy = grad + grads.start(blockIdx.x);
  T* dx = grad_input + out.start(blockIdx.x);
  Wide mean = 0, variance = 0, sum = 0, product = 0;
  for (int64_t i = threadIdx.x; i < in.width; i += kThreads) mean += Wide(x[i * in.step]);
  mean = block_sum(mean) / in.width;
  for (int64_t i = threadIdx.x; i < in.width; i += kThreads) {
    const Wide centered = Wide(x[i * in.step]) - mean;
    variance += centered * centered;
  }
  const Wide scale = 1 / sqrt(block_sum(variance) / in.width + Wide(eps));
  for (int64_t i = threadIdx.x; i < in.width; i += kThreads) {
    const Wide g = Wide(dy[i * grads.step]) * Wide(weight[i]);
    sum += g;
    product += g * (Wide(x[i * in.step]) - mean) * scale;
  }
  sum = block_sum(sum) / in.width;
  product = block_sum(product) / in.width;
  for (int64_t i = threadIdx.x; i < in.width; i += kThreads) {
    const Wide normal = (Wide(x[i * in.step]) - mean) * scale;
    dx[i * out.step] = T((Wide(dy[i * grads.step]) * Wide(weight[i]) - sum - normal * product) * scale);
  }
  if (threadIdx.x == 0) moments[blockIdx.x] = {mean, scale};
}

constexpr int kColumns = 32, kLanes = 8;

// grad_weight = Σ grad · x̂ and grad_bias = Σ grad over rows: one block 32 columns, each by 8 threads that
// take every eighth row. No atomics: the same inputs give the same bits.
template <typename T, typename Wide>
__global__ void parameter_columns(const T* grad, Rows grads, const T* input, Rows in,
                                  const Moments<Wide>* moments, T* grad_weight, T* grad_bias) {
  __shared__ Wide weight_sums[kLanes][kColumns], bias_sums[kLanes][kColumns];
  const int64_t column = blockIdx.x * int64_t(kColumns) + threadIdx.x;
  Wide weight_sum = 0, bias_sum = 0;
  if (column < in.width) {
    for (int64_t row = threadIdx.y; row < in.count; row += kLanes) {
      const Wide dy = Wide(grad[grads.start(row) + column * grads.step]);
      const Wide x = Wide(input[in.start(row) + column * in.step]);
      weight_sum += dy * (x - moments[row].mean) * moments[row].scale;
      bias_sum += dy;
    }
  }
  weight_sums[threadIdx.y][threadIdx.x] = weight_sum;
  bias_sums[threadIdx.y][threadIdx.x] = bias_sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= in.width) return;
  for (int lane = 1; lane < kLanes; ++lane) {
    weight_sum += weight_sums[lane][threadIdx.x];
    bias_sum += bias_sums[lane][threadIdx.x];
  }
  grad_weight[column] = T(weight_sum);
  grad_bias[column] = T(bias_sum);
}

extern "C" int64_t layer_norm_backward_workspace(const DLTensor*, const DLTensor* input, const int64_t*,
                                                 int64_t, const DLTensor*, const DLTensor*, double,
                                                 DLTensor*, DLTensor*, DLTensor*) {
  if (check_rows(input)) return -1;
  return rows_along(input, -1).count * int64_t{sizeof(Moments<double>)};
}

extern "C" int layer_norm_backward(const DLTensor* grad_output, const DLTensor* input, const int64_t*,
                                   int64_t normalized_shape_len, const DLTensor* weight, const DLTensor* bias,
                                   double eps, DLTensor* grad_input, DLTensor* grad_weight,
                                   DLTensor* grad_bias, void* workspace, int64_t, cgins_stream stream) {
  CGINS_CHECK(weight && bias, "layers without weight or bias are not supported");
  if (check_layer_norm(input, normalized_shape_len, weight, bias) ||
      check_types(input, {grad_output, grad_input, grad_weight, grad_bias}))
    return 1;
  CGINS_CHECK(cgins::numel(input) > 0, "there is nothing to normalize: the input is empty");
  const Rows grads = rows_along(grad_output, -1), rows = rows_along(input, -1);
  if (check_grid(rows.count)) return 1;
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    using Wide = cgins::accumulator<T>;
    auto* moments = static_cast<Moments<Wide>*>(workspace);
    input_rows<<<rows.count, kThreads, 0, stream>>>(
        cgins::data<const T>(grad_output), grads, cgins::data<const T>(input), rows,
        cgins::data<const T>(weight), eps, cgins::data<T>(grad_input), rows_along(grad_input, -1), moments);
    CGINS_LAUNCH_CHECK();
    parameter_columns<<<(rows.width + kColumns - 1) / kColumns, dim3(kColumns, kLanes), 0, stream>>>(
        cgins::data<const T>(grad_output), grads, cgins::data<const T>(input), rows, moments,
        cgins::data<T>(grad_weight), cgins::data<T>(grad_bias));
    CGINS_LAUNCH_CHECK();
    return 0;
  });
}
