// Sum and maximum over the threads of a block: every thread gets the result.
#pragma once
#include <cgins.h>

constexpr int kThreads = 256;

template <typename T, typename Combine>
__device__ T block_reduce(T value, T neutral, Combine combine) {
  __shared__ T partial[kThreads / 32];
  for (int lane = 16; lane > 0; lane /= 2) value = combine(value, __shfl_xor_sync(0xffffffff, value, lane));
  __syncthreads();  // the last call's result may still be read
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  value = threadIdx.x % 32 < kThreads / 32 ? partial[threadIdx.x % 32] : neutral;
  for (int lane = 16; lane > 0; lane /= 2) value = combine(value, __shfl_xor_sync(0xffffffff, value, lane));
  return value;
}

template <typename T>
__device__ T block_sum(T value) {
  return block_reduce(value, T(0), [](T a, T b) { return a + b; });
}

template <typename T>
__device__ T block_max(T value) {
  return block_reduce(value, T(-INFINITY), [](T a, T b) { return a > b ? a : b; });
}
