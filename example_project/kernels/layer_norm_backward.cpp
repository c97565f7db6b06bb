// cgins: layer_norm_backward(Tensor grad_output, Tensor input, int[] normalized_shape, Tensor? weight=None,
//     Tensor? bias=None, float eps=1e-5) -> (Tensor grad_input, Tensor grad_weight, Tensor grad_bias)
#include <algorithm>
#include <cmath>
#include <vector>

#include "layer_norm.h"

constexpr int64_t kColumns = 64;  // whose sums over rows grow side by side

// With x̂ = (x - mean) / σ and g = grad · weight, both of one row:
//   grad_input = (g - mean(g) - x̂ · mean(g · x̂)) / σ
//   grad_weight = Σ grad · x̂ and grad_bias = Σ grad, over rows
template <typename T>
static void layer_norm_backward(const T* grad, Rows grads, const T* input, Rows in, const T* weight, double eps,
                                T* grad_input, Rows out, T* grad_weight, T* grad_bias) {
  using Wide = cgins::accumulator<T>;
  const int64_t width = in.width;
  std::vector<Wide> means(in.count), scales(in.count);
#pragma omp parallel if (in.count * width > 32768)
  {
#pragma omp for
    for (int64_t row = 0; row < in.count; ++row) {
      const T* x = input + in.start(row);
      const T* dy = grad + grads.start(row);
      T* dx = grad_input + out.start(row);
      Wide mean = 0, variance = 0, sum = 0, product = 0;
      for (int64_t i = 0; i < width; ++i) mean += Wide(x[i * in.step]);
      mean /= width;
      for (int64_t i = 0; i < width; ++i) {
        const Wide centered = Wide(x[i * in.step]) - mean;
        variance += centered * centered;
      }
      const Wide scale = 1 / std::sqrt(variance / width + Wide(eps));
      for (int64_t i = 0; i < width; ++i) {
        const Wide g = Wide(dy[i * grads.step]) * Wide(weight[i]);
        sum += g;
        product += g * (Wide(x[i * in.step]) - mean) * scale;
      }
      for (int64_t i = 0; i < width; ++i) {
        const Wide normal = (Wide(x[i * in.step]) - mean) * scale;
        const Wide g = Wide(dy[i * grads.step]) * Wide(weight[i]);
        dx[i * out.step] = T((g - sum / width - normal * product / width) * scale);
      }
      means[row] = mean;
      scales[row] = scale;
    }
#pragma omp for
    for (int64_t first = 0; first < width; first += kColumns) {
      const int64_t count = std::min(kColumns, width - first);
      Wide weight_sum[kColumns] = {}, bias_sum[kColumns] = {};
      for (int64_t row = 0; row < in.count; ++row) {
        const T* x = input + in.start(row) + first * in.step;
        const T* dy = grad + grads.start(row) + first * grads.step;
        for (int64_t i = 0; i < count; ++i) {
          weight_sum[i] += Wide(dy[i * grads.step]) * (Wide(x[i * in.step]) - means[row]) * scales[row];
          bias_sum[i] += Wide(dy[i * grads.step]);
        }
      }
      for (int64_t i = 0; i < count; ++i) {
        grad_weight[first + i] = T(weight_sum[i]);
        grad_bias[first + i] = T(bias_sum[i]);
      }
    }
  }
}

extern "C" int layer_norm_backward(const DLTensor* grad_output, const DLTensor* input, const int64_t*,
                                   int64_t normalized_shape_len, const DLTensor* weight, const DLTensor* bias,
                                   double eps, DLTensor* grad_input, DLTensor* grad_weight,
                                   DLTensor* grad_bias, cgins_stream) {
  CGINS_CHECK(weight && bias, "layers without weight or bias are not supported");
  if (check_layer_norm(input, normalized_shape_len, weight, bias) ||
      check_types(input, {grad_output, grad_input, grad_weight, grad_bias}))
    return 1;
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    layer_norm_backward(cgins::data<T>(grad_output), rows_along(grad_output, -1), cgins::data<T>(input),
                        rows_along(input, -1), cgins::data<T>(weight), eps, cgins::data<T>(grad_input),
                        rows_along(grad_input, -1), cgins::data<T>(grad_weight), cgins::data<T>(grad_bias));
    return 0;
  });
}
