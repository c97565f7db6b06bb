// Cosines and sines of rotary positions, (length, half) each: shared by the C++ and the CUDA kernel.
#pragma once
#include "rows.h"

template <typename T>
struct Angles {
  const T* cos;
  const T* sin;
  int64_t length;                  // positions; row r of a (…, length, width) tensor is at position r % length
  int64_t cos_stride, sin_stride;  // from position to position, in elements

  Angles(const DLTensor* cosines, const DLTensor* sines)
      : cos(cgins::data<T>(cosines)), sin(cgins::data<T>(sines)), length(cosines->shape[0]),
        cos_stride(cosines->strides[0]), sin_stride(sines->strides[0]) {}
};

// Returns 0, or an error with its message.
inline int check_angles(const DLTensor* x, const DLTensor* cos, const DLTensor* sin, const DLTensor* out) {
  if (check_rows(x) || check_types(x, {cos, sin, out})) return 1;
  CGINS_CHECK(cos->ndim == 2 && cgins::same_shape(cos, sin), "cos and sin must be (length, half) both");
  CGINS_CHECK(cgins::stride(cos, 1) == 1 && cgins::stride(sin, 1) == 1,
              "cos and sin must have dense rows");
  CGINS_CHECK(x->ndim >= 2 && cgins::size(x, -2) == cos->shape[0] && cgins::size(x, -1) == 2 * cos->shape[1],
              "query and key must be (…, %d, %d), as cos and sin are (%d, %d)", int(cos->shape[0]),
              int(2 * cos->shape[1]), int(cos->shape[0]), int(cos->shape[1]));
  return 0;
}
