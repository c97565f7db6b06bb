// Softmax of contiguous float rows, a block a row: what every variant launches, on the streams that it is about.
#pragma once
#include <cuda_runtime.h>
#include <cstdint>

constexpr int kThreads = 256;

__device__ inline float over_block(float value, bool largest) {
  __shared__ float shared[kThreads];
  shared[threadIdx.x] = value;
  __syncthreads();
  for (int half = kThreads / 2; half; half /= 2) {
    if (threadIdx.x < half) {
      const float other = shared[threadIdx.x + half];
      shared[threadIdx.x] = largest ? fmaxf(shared[threadIdx.x], other) : shared[threadIdx.x] + other;
    }
    __syncthreads();
  }
  const float all = shared[0];
  __syncthreads();
  return all;
}

// The largest number and the sum of each row.
__global__ void row_stats(const float* x, float2* stats, int64_t width) {
  const float* row = x + blockIdx.x * width;
  float largest = -INFINITY, sum = 0;
  for (int64_t i = threadIdx.x; i < width; i += kThreads) largest = fmaxf(largest, row[i]);
  largest = over_block(largest, true);
  for (int64_t i = threadIdx.x; i < width; i += kThreads) sum += expf(row[i] - largest);
  sum = over_block(sum, false);
  if (threadIdx.x == 0) stats[blockIdx.x] = make_float2(largest, sum);
}

__global__ void finish_rows(const float* x, const float2* stats, float* y, int64_t width) {
  const float2 both = stats[blockIdx.x];
  for (int64_t i = threadIdx.x; i < width; i += kThreads)
    y[blockIdx.x * width + i] = expf(x[blockIdx.x * width + i] - both.x) / both.y;
}

__global__ void softmax_rows(const float* x, float* y, int64_t width) {
  x += blockIdx.x * width, y += blockIdx.x * width;
  float largest = -INFINITY, sum = 0;
  for (int64_t i = threadIdx.x; i < width; i += kThreads) largest = fmaxf(largest, x[i]);
  largest = over_block(largest, true);
  for (int64_t i = threadIdx.x; i < width; i += kThreads) sum += expf(x[i] - largest);
  sum = over_block(sum, false);
  for (int64_t i = threadIdx.x; i < width; i += kThreads) y[i] = expf(x[i] - largest) / sum;
}

struct Side {
  cudaStream_t free = nullptr, blocking = nullptr;
  cudaEvent_t fork = nullptr, join = nullptr;
  float2* stats = nullptr;
  float* copy = nullptr;
};

// Streams and scratch memory that a kernel made for itself, once.
inline Side& side_of(int64_t rows, int64_t width) {
  static Side side;
  static int64_t made_rows = 0, made_numbers = 0;
  if (!side.free) {
    cudaStreamCreateWithFlags(&side.free, cudaStreamNonBlocking);
    cudaStreamCreate(&side.blocking);
    cudaEventCreateWithFlags(&side.fork, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&side.join, cudaEventDisableTiming);
  }
  if (rows > made_rows) cudaMalloc(&side.stats, sizeof(float2) * (made_rows = rows));
  if (rows * width > made_numbers) cudaMalloc(&side.copy, sizeof(float) * (made_numbers = rows * width));
  return side;
}
