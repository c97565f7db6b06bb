// The backward of a layer norm: one thread a row of the input's gradient, one a column of the parameters'.
#pragma once
#include "variant.h"

struct SameNumber {
  template <typename T>
  using type = Wide<T>;
};
struct DoubleNumber {
  template <typename T>
  using type = double;
};

template <typename T, typename Number>
struct LayerNormGradients {
  const T *grad, *input, *weight;
  T *grad_input, *grad_weight, *grad_bias;
  Rows grads, in, out;
  double eps;

  static CGINS_HOST_DEVICE Number number(T x) { return Number(Wide<T>(x)); }

  CGINS_HOST_DEVICE void moments(Row<const T> x, Number* mean, Number* scale) const {
    Number sum = 0, squares = 0;
    for (int64_t i = in.width - 1; i >= 0; --i) sum += number(x[i]);
    *mean = sum / in.width;
    for (int64_t i = in.width - 1; i >= 0; --i) squares += (number(x[i]) - *mean) * (number(x[i]) - *mean);
    *scale = 1 / std::sqrt(squares / in.width + Number(eps));
  }

  CGINS_HOST_DEVICE void row(int64_t number_of_row) const {
    const Row<const T> x = row_of(input, in, number_of_row), dy = row_of(grad, grads, number_of_row);
    const Row<T> dx = row_of(grad_input, out, number_of_row);
    Number mean, scale, sum = 0, product = 0;
    moments(x, &mean, &scale);
    for (int64_t i = in.width - 1; i >= 0; --i) {
      const Number g = number(dy[i]) * number(weight[i]);
      sum += g;
      product += g * ((number(x[i]) - mean) * scale);
    }
    for (int64_t i = 0; i < in.width; ++i) {
      const Number g = number(dy[i]) * number(weight[i]), normal = (number(x[i]) - mean) * scale;
      dx[i] = T(Wide<T>(scale / in.width * (in.width * g - sum - normal * product)));
    }
  }

  CGINS_HOST_DEVICE void column(int64_t i) const {
    Number weights = 0, biases = 0, mean, scale;
    for (int64_t row = in.count - 1; row >= 0; --row) {
      const Row<const T> x = row_of(input, in, row);
      const Number dy = number(row_of(grad, grads, row)[i]);
      moments(x, &mean, &scale);
      weights += dy * ((number(x[i]) - mean) * scale);
      biases += dy;
    }
    grad_weight[i] = T(Wide<T>(weights));
    grad_bias[i] = T(Wide<T>(biases));
  }

  CGINS_HOST_DEVICE void operator()(int64_t i) const { i < in.count ? row(i) : column(i - in.count); }
};

// Numbers::type<T> is what is computed with.
template <typename Numbers>
int layer_norm_backward_by(const DLTensor* grad_output, const DLTensor* input, const DLTensor* weight, double eps,
                           DLTensor* grad_input, DLTensor* grad_weight, DLTensor* grad_bias, cgins_stream stream) {
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const Rows in = rows_along(input, -1);
    const LayerNormGradients<T, typename Numbers::template type<T>> gradients{
        cgins::data<T>(grad_output), cgins::data<T>(input), cgins::data<T>(weight), cgins::data<T>(grad_input),
        cgins::data<T>(grad_weight), cgins::data<T>(grad_bias), rows_along(grad_output, -1), in,
        rows_along(grad_input, -1), eps};
    return each(in.count + in.width, stream, gradients);
  });
}
