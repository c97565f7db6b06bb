// Convolutions with one thread an element of the output, behind a max pool or not.
#pragma once
#include "convolution.h"
#include "operations.h"
#include "variant.h"

// The greatest of the sums of a pool's windows; pool 1 is no pool.
template <typename T, typename Dot, int kPool, bool kBiasFirst>
struct WindowElement {
  Convolution conv;
  const T *x, *weight, *bias;
  T* y;
  CGINS_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t filters = conv.groups * conv.filters, filter = i % filters, window = i / filters;
    const Wide<T> shift = bias ? Wide<T>(bias[filter]) : Wide<T>(0);
    Wide<T> result = -INFINITY;
    for (int64_t number = window * kPool * kPool; number < (window + 1) * kPool * kPool; ++number) {
      const Pixel pixel = conv.pixel(number, kPool, filter / conv.filters);
      const Wide<T> sum = Dot::template of<T>(conv, x, pixel, weight + filter * conv.w[0]);
      result = larger(result, kBiasFirst ? sum + shift : sum);
    }
    if (!kBiasFirst) result += shift;
    if (kPool > 1) result = Relu{}(result);
    y[conv.out_offset(window, kPool) + filter * conv.y[1]] = T(result);
  }
};

// Dot::of<T>(conv, x, pixel, filter's weight) gives one sum.
template <typename Dot, int kPool, bool kBiasFirst>
int windows_by(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, DLTensor* out,
               const Convolution& conv, cgins_stream stream) {
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const WindowElement<T, Dot, kPool, kBiasFirst> element{conv, cgins::data<T>(input), cgins::data<T>(weight),
                                                           bias ? cgins::data<T>(bias) : nullptr,
                                                           cgins::data<T>(out)};
    return each(conv.windows(kPool) * conv.groups * conv.filters, stream, element);
  });
}

// conv2d, from its launcher's arguments.
template <typename Dot>
int conv2d_by(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, const int64_t* stride,
              int64_t stride_len, const int64_t* padding, int64_t padding_len, const int64_t* dilation,
              int64_t dilation_len, int64_t groups, DLTensor* out, cgins_stream stream) {
  Convolution conv = {};
  spread(stride, stride_len, conv.stride);
  spread(padding, padding_len, conv.padding);
  spread(dilation, dilation_len, conv.dilation);
  if (describe(input, weight, bias, out, groups, &conv)) return 1;
  return windows_by<Dot, 1, true>(input, weight, bias, out, conv, stream);
}

// conv_relu_pool, from its launcher's arguments. The activation is behind the pool, which it commutes with.
template <typename Dot, bool kBiasFirst>
int conv_relu_pool_by(const DLTensor* x, const DLTensor* weight, const DLTensor* bias, int64_t padding, DLTensor* out,
                      cgins_stream stream) {
  Convolution conv = {};
  spread(&padding, 1, conv.padding);
  for (int d = 0; d < 2; ++d) conv.stride[d] = conv.dilation[d] = 1;
  if (describe(x, weight, bias, out, 1, &conv)) return 1;
  return windows_by<Dot, 2, kBiasFirst>(x, weight, bias, out, conv, stream);
}

struct InOrder {
  template <typename T>
  static CGINS_HOST_DEVICE Wide<T> of(const Convolution& conv, const T* x, Pixel pixel, const T* weight) {
    Wide<T> sum = 0;
    for (int64_t k = 0; k < conv.taps(); ++k) {
      const Tap tap = conv.tap(k);
      sum += conv.read(x, pixel, tap) * Wide<T>(weight[tap.weight]);
    }
    return sum;
  }
};
