// Runs a function over the rows of a tensor: all cores on the CPU, one thread a row on a GPU.
// The variants are about numbers, not about speed, and are the same text as C++ and as CUDA.
#pragma once
#include <cmath>

#include "rows.h"

// T as it is stored, Wide as it is computed with.
template <typename T>
using Wide = cgins::accumulator<T>;

// A row with a stride: element i is row[i].
template <typename T>
struct Row {
  T* data;
  int64_t step;
  CGINS_HOST_DEVICE T& operator[](int64_t i) const { return data[i * step]; }
};

template <typename T>
CGINS_HOST_DEVICE Row<T> row_of(T* data, const Rows& rows, int64_t row) {
  return {data + rows.start(row), rows.step};
}

#ifdef __CUDACC__
template <typename Function>
__global__ void each_on_gpu(int64_t count, Function function) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < count) function(i);
}
template <typename Function>
int each(int64_t count, cgins_stream stream, Function function) {
  each_on_gpu<<<(count + 63) / 64, 64, 0, stream>>>(count, function);
  CGINS_LAUNCH_CHECK();
  return 0;
}
#else
template <typename Function>
int each(int64_t count, cgins_stream, Function function) {
#pragma omp parallel for
  for (int64_t i = 0; i < count; ++i) function(i);
  return 0;
}
#endif

// Functors stand in for lambdas, which nvcc takes on the device only with a further flag.
template <typename T, typename Dot>
struct LinearElement {
  const T *input, *weight, *bias;
  T* output;
  Rows in, columns, out;
  CGINS_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t row = i / columns.count, n = i % columns.count;
    const Row<const T> x = row_of(input, in, row), w = row_of(weight, columns, n);
    row_of(output, out, row)[n] = Dot::template of<T>(x, w, bias ? bias + n : nullptr, in.width);
  }
};

// Dot::of<T>(x, w, bias or null, width) gives one element of the output.
template <typename Dot>
int linear_by(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, DLTensor* out,
              cgins_stream stream) {
  CGINS_CHECK(!bias || cgins::is_contiguous(bias), "a dense bias only");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const LinearElement<T, Dot> element{cgins::data<T>(input),  cgins::data<T>(weight),
                                        bias ? cgins::data<T>(bias) : nullptr,
                                        cgins::data<T>(out),    rows_along(input, -1),
                                        rows_along(weight, -1), rows_along(out, -1)};
    return each(element.in.count * element.columns.count, stream, element);
  });
}

template <typename T, typename Norm>
struct NormRow {
  const T *input, *weight, *bias;
  T* output;
  Rows in, out;
  double eps;
  CGINS_HOST_DEVICE void operator()(int64_t row) const {
    Norm::template of<T>(row_of(input, in, row), weight, bias, eps, row_of(output, out, row), in.width);
  }
};

// Norm::of<T>(x, weight or null, bias or null, eps, y, width) writes one row.
template <typename Norm>
int norm_by(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, double eps, DLTensor* out,
            cgins_stream stream) {
  CGINS_CHECK((!weight || cgins::is_contiguous(weight)) && (!bias || cgins::is_contiguous(bias)), "dense parameters only");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const NormRow<T, Norm> row{cgins::data<T>(input), weight ? cgins::data<T>(weight) : nullptr,
                               bias ? cgins::data<T>(bias) : nullptr, cgins::data<T>(out),
                               rows_along(input, -1), rows_along(out, -1), eps};
    return each(row.in.count, stream, row);
  });
}

// Writes (x − mean) · scale · weight + bias.
template <typename T, typename W>
CGINS_HOST_DEVICE void write_normalized(Row<const T> x, const T* weight, const T* bias, W mean, W scale, Row<T> y,
                                        int64_t width) {
  for (int64_t i = 0; i < width; ++i) {
    W value = (W(x[i]) - mean) * scale;
    if (weight) value *= W(weight[i]);
    if (bias) value += W(bias[i]);
    y[i] = T(value);
  }
}

template <typename T, typename Softmax>
struct SoftmaxRow {
  const T* input;
  T* output;
  Rows in, out;
  CGINS_HOST_DEVICE void operator()(int64_t row) const {
    Softmax::template of<T>(row_of(input, in, row), row_of(output, out, row), in.width);
  }
};

// Softmax::of<T>(x, y, width) writes one row; input and output have one dtype.
template <typename Softmax>
int softmax_by(const DLTensor* input, int64_t dim, DLTensor* out, cgins_stream stream) {
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const SoftmaxRow<T, Softmax> row{cgins::data<T>(input), cgins::data<T>(out), rows_along(input, dim),
                                     rows_along(out, dim)};
    return each(row.in.count, stream, row);
  });
}

template <typename T>
CGINS_HOST_DEVICE Wide<T> largest_of(Row<const T> x, int64_t width) {
  Wide<T> largest = -INFINITY;
  for (int64_t i = 0; i < width; ++i) largest = fmax(largest, Wide<T>(x[i]));
  return largest;
}
