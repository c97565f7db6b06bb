// A tensor seen as rows along one axis, whatever its strides: shared by the C++ and the CUDA kernels.
#pragma once
#include "checks.h"

struct Rows {
  static constexpr int kMaxDims = 8;
  int64_t count = 1;  // rows
  int64_t width = 1;  // elements in a row
  int64_t step = 1;   // distance of neighbours in a row, in elements
  int dims = 0;       // axes that number the rows
  int64_t shape[kMaxDims] = {};
  int64_t stride[kMaxDims] = {};

  // Offset of a row's first element from the start of the data, in elements.
  CGINS_HOST_DEVICE int64_t start(int64_t row) const {
    int64_t offset = 0;
    for (int d = dims - 1; d >= 0; --d) {
      offset += row % shape[d] * stride[d];
      row /= shape[d];
    }
    return offset;
  }
};

inline int check_rows(const DLTensor* tensor) {
  CGINS_CHECK(tensor->ndim <= Rows::kMaxDims, "%d dimensions, more than %d", tensor->ndim, Rows::kMaxDims);
  return 0;
}

// Of a tensor that was checked.
inline Rows rows_along(const DLTensor* tensor, int64_t axis) {
  if (axis < 0) axis += tensor->ndim;
  Rows rows;
  for (int d = 0; d < tensor->ndim; ++d) {
    if (d == axis) {
      rows.width = tensor->shape[d];
      rows.step = tensor->strides[d];
      continue;
    }
    rows.shape[rows.dims] = tensor->shape[d];
    rows.stride[rows.dims++] = tensor->strides[d];
    rows.count *= tensor->shape[d];
  }
  return rows;
}
