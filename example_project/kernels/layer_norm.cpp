// cgins: layer_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-5) -> Tensor
#include <cmath>

#include "layer_norm.h"

template <typename T>
static void layer_norm_rows(const T* input, Rows in, const T* weight, const T* bias, double eps, T* output,
                            Rows out) {
  using Wide = cgins::accumulator<T>;
#pragma omp parallel for if (in.count * in.width > 32768)
  for (int64_t row = 0; row < in.count; ++row) {
    const T* x = input + in.start(row);
    T* y = output + out.start(row);
    Wide mean = 0;
    for (int64_t i = 0; i < in.width; ++i) mean += Wide(x[i * in.step]);
    mean /= in.width;
    Wide variance = 0;
    for (int64_t i = 0; i < in.width; ++i) {
      const Wide centered = Wide(x[i * in.step]) - mean;
      variance += centered * centered;
    }
    variance /= in.width;
    const Wide scale = 1 / std::sqrt(variance + Wide(eps));
    for (int64_t i = 0; i < in.width; ++i) {
      Wide value = (Wide(x[i * in.step]) - mean) * scale;
      if (weight) value *= Wide(weight[i]);
      if (bias) value += Wide(bias[i]);
      y[i * out.step] = T(value);
    }
  }
}

extern "C" int layer_norm(const DLTensor* input, const int64_t*, int64_t normalized_shape_len,
                          const DLTensor* weight, const DLTensor* bias, double eps, DLTensor* out,
                          cgins_stream) {
  if (check_layer_norm(input, normalized_shape_len, weight, bias) || check_types(input, {out})) return 1;
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    layer_norm_rows(cgins::data<T>(input), rows_along(input, -1), weight ? cgins::data<T>(weight) : nullptr,
                    bias ? cgins::data<T>(bias) : nullptr, eps, cgins::data<T>(out), rows_along(out, -1));
    return 0;
  });
}
