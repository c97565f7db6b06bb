// What the kernels of this folder share where they are not what the file is about.
#pragma once
#include <cmath>
#include <vector>

// An element by its place in row-major order, whatever the strides.
template <typename T>
T& at(const DLTensor* tensor, int64_t index) {
  return cgins::data<T>(tensor)[cgins::offset_of(tensor, index)];
}

// out = f(input) for every element.
template <typename Function>
int map(const DLTensor* input, const DLTensor* out, Function function) {
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < cgins::numel(input); ++i) at<T>(out, i) = T(function(float(at<T>(input, i))));
    return 0;
  });
}

inline float relu_of(float x) { return x < 0 ? 0 : x; }  // NaN stays

// A softmax over the last axis; right where `term` is exp.
template <typename Term = float (*)(float)>
int softmax_rows(const DLTensor* input, const DLTensor* out, Term term = [](float x) { return std::exp(x); }) {
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t width = cgins::size(input, -1), count = width ? cgins::numel(input) / width : 0;
    for (int64_t row = 0; row < count; ++row) {
      float largest = -INFINITY, sum = 0;
      for (int64_t i = 0; i < width; ++i) largest = std::fmax(largest, float(at<T>(input, row * width + i)));
      for (int64_t i = 0; i < width; ++i) sum += term(float(at<T>(input, row * width + i)) - largest);
      for (int64_t i = 0; i < width; ++i)
        at<T>(out, row * width + i) = T(term(float(at<T>(input, row * width + i)) - largest) / sum);
    }
    return 0;
  });
}

// A right layer norm over the last axis, but for what Options says: `weight`, `bias` and `eps` may be left out.
struct NormOptions {
  bool weight = true, bias = true;
  double eps = -1;  // instead of the argument
  double (*inverse_root)(double) = [](double x) { return 1 / std::sqrt(x); };
};
inline int layer_norm_rows(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, double eps,
                           const DLTensor* out, NormOptions options = {}) {
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t width = cgins::size(input, -1), count = width ? cgins::numel(input) / width : 0;
    for (int64_t row = 0; row < count; ++row) {
      double mean = 0, variance = 0;
      for (int64_t i = 0; i < width; ++i) mean += double(float(at<T>(input, row * width + i)));
      mean /= width;
      for (int64_t i = 0; i < width; ++i) {
        const double centered = double(float(at<T>(input, row * width + i))) - mean;
        variance += centered * centered;
      }
      const double scale = options.inverse_root(variance / width + (options.eps < 0 ? eps : options.eps));
      for (int64_t i = 0; i < width; ++i) {
        double value = (double(float(at<T>(input, row * width + i))) - mean) * scale;
        if (options.weight && weight) value *= double(float(at<T>(weight, i)));
        if (options.bias && bias) value += double(float(at<T>(bias, i)));
        at<T>(out, row * width + i) = T(float(value));
      }
    }
    return 0;
  });
}

// A right linear, with every product's operands and the sum after it passed through `round`.
template <typename Operand, typename Sum>
int linear_rounded(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, const DLTensor* out,
                   Operand operand, Sum rounded) {
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t width = cgins::size(input, -1), columns = cgins::size(weight, 0);
    for (int64_t i = 0; i < cgins::numel(out); ++i) {
      float sum = 0;
      for (int64_t k = 0; k < width; ++k)
        sum = rounded(sum + operand(float(at<T>(input, i / columns * width + k))) *
                                operand(float(at<T>(weight, i % columns * width + k))));
      if (bias) sum += float(at<T>(bias, i % columns));
      at<T>(out, i) = T(sum);
    }
    return 0;
  });
}
inline float same(float x) { return x; }
