// y = f(x) and y = f(a, b) for every element, on the CPU; tensors of any strides, broadcast to y.
#pragma once
#include <vector>

#include "elements.h"

// Calls function(offsets) for every element. Rows run along the innermost dimension; long ones are cut for the threads.
template <int N, typename Function>
void for_each(const Elements<N>& elements, Function function) {
  if (elements.count == 0) return;
  constexpr int64_t kPart = 4096;
  const int inner = elements.dims - 1;
  const int64_t width = elements.dims ? elements.size[inner] : 1, parts = (width + kPart - 1) / kPart;
  int64_t step[N];
  bool unit = true;  // in all views but the last
  for (int n = 0; n < N; ++n) {
    step[n] = elements.dims ? elements.stride[n][inner] : 1;
    unit = unit && (step[n] == 1 || n == N - 1);
  }
#pragma omp parallel for if (elements.count > 32768)
  for (int64_t part = 0; part < elements.count / width * parts; ++part) {
    const int64_t begin = part % parts * kPart, length = width - begin < kPart ? width - begin : kPart;
    const Offsets<N> start = elements.offsets(part / parts * width + begin);
    const auto sweep = [&](auto step_of) {
#pragma GCC ivdep  // not omp simd, which keeps GCC from vectorizing the 16-bit types
      for (int64_t i = 0; i < length; ++i) {
        Offsets<N> offsets;
        for (int n = 0; n < N; ++n) offsets.at[n] = start[n] + i * step_of(n);
        function(offsets);
      }
    };
    // Compilers vectorize for strides that they know: 1 throughout, or a last view that stands still.
    if (unit && step[N - 1] == 1) sweep([](int) { return 1; });
    else if (unit && step[N - 1] == 0) sweep([](int n) { return n < N - 1; });
    else sweep([&](int n) { return step[n]; });
  }
}

// A copy in row-major order, in the accumulator's type: read often, it is converted once.
template <typename T>
std::vector<cgins::accumulator<T>> widened(const DLTensor* tensor) {
  std::vector<cgins::accumulator<T>> copy(cgins::numel(tensor));
  const T* from = cgins::data<T>(tensor);
  auto* to = copy.data();
  for_each(elements<2>(tensor, {row_major(tensor), broadcast(tensor, tensor)}),
           [=](const Offsets<2>& at) { to[at[0]] = from[at[1]]; });
  return copy;
}

template <typename Function>
int unary(const DLTensor* input, DLTensor* out, Function function) {
  CGINS_CHECK(out->ndim <= kMaxDims, "%d dimensions, more than %d", out->ndim, kMaxDims);
  if (check_types(input, {out})) return 1;
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const T* x = cgins::data<T>(input);
    T* y = cgins::data<T>(out);
    for_each(elements<2>(out, {broadcast(out, out), broadcast(input, out)}),
             [=](const Offsets<2>& at) { y[at[0]] = T(function(cgins::accumulator<T>(x[at[1]]))); });
    return 0;
  });
}

template <typename Function>
int binary(const DLTensor* left, const DLTensor* right, DLTensor* out, Function function) {
  CGINS_CHECK(out->ndim <= kMaxDims, "%d dimensions, more than %d", out->ndim, kMaxDims);
  if (check_types(left, {right, out})) return 1;
  return cgins::dispatch_floating(left, [&](auto zero) {
    using T = decltype(zero);
    using Wide = cgins::accumulator<T>;
    const T *a = cgins::data<T>(left), *b = cgins::data<T>(right);
    T* y = cgins::data<T>(out);
    for_each(elements<3>(out, {broadcast(out, out), broadcast(left, out), broadcast(right, out)}),
             [=](const Offsets<3>& at) { y[at[0]] = T(function(Wide(a[at[1]]), Wide(b[at[2]]))); });
    return 0;
  });
}
