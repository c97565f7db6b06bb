// y = f(x) and y = f(a, b) for every element, on the GPU; tensors of any strides, broadcast to y.
#pragma once
#include "elements.h"

constexpr int kElementThreads = 256;

// 16 bytes of a tensor: one load or store.
template <typename T>
struct alignas(16) Pack {
  static constexpr int kCount = 16 / sizeof(T);
  T item[kCount];
};

inline bool is_aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

template <typename T, typename Function>
__global__ void map_packs(Pack<T>* y, const Pack<T>* x, int64_t count, Function function) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i >= count) return;
  Pack<T> pack = x[i];
#pragma unroll
  for (int k = 0; k < Pack<T>::kCount; ++k) pack.item[k] = T(function(cgins::accumulator<T>(pack.item[k])));
  y[i] = pack;
}

template <typename T, typename Function>
__global__ void map_packs(Pack<T>* y, const Pack<T>* a, const Pack<T>* b, int64_t count, Function function) {
  using Wide = cgins::accumulator<T>;
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i >= count) return;
  Pack<T> left = a[i];
  const Pack<T> right = b[i];
#pragma unroll
  for (int k = 0; k < Pack<T>::kCount; ++k) left.item[k] = T(function(Wide(left.item[k]), Wide(right.item[k])));
  y[i] = left;
}

template <typename T, typename Function>
__global__ void map_elements(T* y, const T* x, Elements<2> elements, Function function) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i >= elements.count) return;
  const Offsets<2> at = elements.offsets(i);
  y[at[0]] = T(function(cgins::accumulator<T>(x[at[1]])));
}

template <typename T, typename Function>
__global__ void map_elements(T* y, const T* a, const T* b, Elements<3> elements, Function function) {
  using Wide = cgins::accumulator<T>;
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i >= elements.count) return;
  const Offsets<3> at = elements.offsets(i);
  y[at[0]] = T(function(Wide(a[at[1]]), Wide(b[at[2]])));
}

inline int64_t element_blocks(int64_t count) { return (count + kElementThreads - 1) / kElementThreads; }

template <typename Function>
int unary(const DLTensor* input, DLTensor* out, Function function, cgins_stream stream) {
  CGINS_CHECK(out->ndim <= kMaxDims, "%d dimensions, more than %d", out->ndim, kMaxDims);
  if (check_types(input, {out})) return 1;
  if (cgins::numel(out) == 0) return 0;
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const T* x = cgins::data<const T>(input);
    T* y = cgins::data<T>(out);
    const auto all = elements<2>(out, {broadcast(out, out), broadcast(input, out)});
    if (all.flat() && all.count % Pack<T>::kCount == 0 && is_aligned(x) && is_aligned(y)) {
      const int64_t packs = all.count / Pack<T>::kCount;
      map_packs<T><<<element_blocks(packs), kElementThreads, 0, stream>>>(
          reinterpret_cast<Pack<T>*>(y), reinterpret_cast<const Pack<T>*>(x), packs, function);
    } else {
      map_elements<T><<<element_blocks(all.count), kElementThreads, 0, stream>>>(y, x, all, function);
    }
    CGINS_LAUNCH_CHECK();
    return 0;
  });
}

template <typename Function>
int binary(const DLTensor* left, const DLTensor* right, DLTensor* out, Function function, cgins_stream stream) {
  CGINS_CHECK(out->ndim <= kMaxDims, "%d dimensions, more than %d", out->ndim, kMaxDims);
  if (check_types(left, {right, out})) return 1;
  if (cgins::numel(out) == 0) return 0;
  return cgins::dispatch_floating(left, [&](auto zero) {
    using T = decltype(zero);
    const T *a = cgins::data<const T>(left), *b = cgins::data<const T>(right);
    T* y = cgins::data<T>(out);
    const auto all = elements<3>(out, {broadcast(out, out), broadcast(left, out), broadcast(right, out)});
    if (all.flat() && all.count % Pack<T>::kCount == 0 && is_aligned(a) && is_aligned(b) && is_aligned(y)) {
      const int64_t packs = all.count / Pack<T>::kCount;
      map_packs<T><<<element_blocks(packs), kElementThreads, 0, stream>>>(
          reinterpret_cast<Pack<T>*>(y), reinterpret_cast<const Pack<T>*>(a),
          reinterpret_cast<const Pack<T>*>(b), packs, function);
    } else {
      map_elements<T><<<element_blocks(all.count), kElementThreads, 0, stream>>>(y, a, b, all, function);
    }
    CGINS_LAUNCH_CHECK();
    return 0;
  });
}
