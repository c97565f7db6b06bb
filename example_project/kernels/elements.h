// The elements of an output, and of tensors that are broadcast to it, numbered in the order of the output's
// memory, whatever the strides: shared by the C++ and the CUDA kernels.
#pragma once
#include "checks.h"

constexpr int kMaxDims = 8;

// Strides along the output's dimensions, in elements; 0 where a tensor is broadcast.
struct View {
  int64_t stride[kMaxDims] = {};
};

inline View broadcast(const DLTensor* tensor, const DLTensor* out) {
  View view;
  const int extra = out->ndim - tensor->ndim;
  for (int d = 0; d < tensor->ndim; ++d)
    if (tensor->shape[d] != 1) view.stride[extra + d] = tensor->strides[d];
  return view;
}

// Not a tensor: the "offset" is an element's place in row-major order.
inline View row_major(const DLTensor* out) {
  View view;
  int64_t step = 1;
  for (int d = out->ndim - 1; d >= 0; --d) {
    view.stride[d] = step;
    step *= out->shape[d];
  }
  return view;
}

// Not a tensor: the "offset" is an element's index along one axis.
inline View along(int axis) {
  View view;
  view.stride[axis] = 1;
  return view;
}

// Offset of one element in each of N views.
template <int N>
struct Offsets {
  int64_t at[N];
  CGINS_HOST_DEVICE int64_t operator[](int view) const { return at[view]; }
};

template <int N>
struct Elements {
  int64_t count = 1;
  int dims = 0;  // as few as the strides allow: 1 where all views are dense and in the same order
  int64_t size[kMaxDims] = {};
  int64_t stride[N][kMaxDims] = {};

  // Of the element with this number. What is below 2^32 is divided in 32 bits: several times as fast on a GPU.
  CGINS_HOST_DEVICE Offsets<N> offsets(int64_t number) const {
    Offsets<N> found = {};
    for (int d = dims - 1; d >= 0; --d) {
      int64_t index = number;
      if (d > 0) {
        const int64_t rest = (number | size[d]) >> 32 ? number / size[d] : uint32_t(number) / uint32_t(size[d]);
        index -= rest * size[d];
        number = rest;
      }
      for (int n = 0; n < N; ++n) found.at[n] += index * stride[n][d];
    }
    return found;
  }

  // Whether the element with number i is at offset i in every view.
  bool flat() const {
    bool unit = dims <= 1;
    for (int n = 0; n < N; ++n) unit = unit && (dims == 0 || stride[n][0] == 1);
    return unit;
  }
};

// The first view is the output's own: its memory gives the order. At most kMaxDims dimensions.
template <int N>
Elements<N> elements(const DLTensor* out, const View (&views)[N]) {
  int order[kMaxDims], dims = 0;
  Elements<N> made;
  for (int d = 0; d < out->ndim; ++d) {
    made.count *= out->shape[d];
    if (out->shape[d] == 1) continue;
    int place = dims++;
    for (; place > 0 && views[0].stride[order[place - 1]] < views[0].stride[d]; --place)
      order[place] = order[place - 1];
    order[place] = d;
  }
  for (int i = 0; i < dims; ++i) {
    const int64_t size = out->shape[order[i]];
    bool joins = made.dims > 0;  // the dimension before, so that both are one
    for (int n = 0; n < N; ++n)
      joins = joins && made.stride[n][made.dims - 1] == size * views[n].stride[order[i]];
    if (!joins) ++made.dims;
    made.size[made.dims - 1] = joins ? made.size[made.dims - 1] * size : size;
    for (int n = 0; n < N; ++n) made.stride[n][made.dims - 1] = views[n].stride[order[i]];
  }
  return made;
}
