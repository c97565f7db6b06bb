// Max pooling: which part of the input an element of the output is the maximum of. Shared by the C++ and the
// CUDA kernel.
#pragma once
#include "elements.h"
#include "operations.h"
#include "pair.h"

struct Pool {
  int64_t channels, height, width, out_height, out_width;
  int64_t kernel[2], stride[2], padding[2], dilation[2];
  int64_t x[4];  // strides of the input

  // Of the element with this row-major number. Padding is never the maximum.
  template <typename T>
  CGINS_HOST_DEVICE T maximum(const T* input, int64_t number) const {
    const int64_t column = number % out_width, row = number / out_width % out_height;
    const int64_t plane = number / out_width / out_height;
    input += plane / channels * x[0] + plane % channels * x[1];
    const Span rows = inside(0, row, height), columns = inside(1, column, width);
    cgins::accumulator<T> best = -INFINITY;
    for (int64_t r = rows.begin; r < rows.end; r += dilation[0])
      for (int64_t c = columns.begin; c < columns.end; c += dilation[1])
        best = larger(best, cgins::accumulator<T>(input[r * x[2] + c * x[3]]));
    return T(best);
  }

  struct Span {
    int64_t begin, end;
  };

  // The part of a window that is not padding.
  CGINS_HOST_DEVICE Span inside(int axis, int64_t place, int64_t size) const {
    int64_t begin = place * stride[axis] - padding[axis], end = begin + (kernel[axis] - 1) * dilation[axis] + 1;
    if (begin < 0) begin += (-begin + dilation[axis] - 1) / dilation[axis] * dilation[axis];
    return {begin, end < size ? end : size};
  }
};

inline int describe(const DLTensor* input, const DLTensor* out, Pool* pool) {
  CGINS_CHECK(input->ndim == 4, "input has %d dimensions, not 4", input->ndim);
  if (check_types(input, {out})) return 1;
  pool->channels = input->shape[1], pool->height = input->shape[2], pool->width = input->shape[3];
  pool->out_height = out->shape[2], pool->out_width = out->shape[3];
  for (int d = 0; d < 4; ++d) pool->x[d] = input->strides[d];
  return 0;
}
