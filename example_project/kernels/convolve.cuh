// Convolution, activation and max pool in one pass on the GPU; pool 1 is no pool.
#pragma once
#include "convolution.h"
#include "gemm.cuh"
#include "operations.h"

// A tile of filters × pixels a block. The taps of each step are looked up once for the block. With pool 2 a thread's
// four neighbouring columns are one window, so that the pool needs no other thread.
template <int kPool, typename T, typename Activation>
__global__ void __launch_bounds__(kTileThreads)
    convolve_tiles(const T* input, const T* weight, const T* bias, T* out, Convolution conv, Activation activate,
                   int64_t down, int64_t across) {
  using Wide = cgins::accumulator<T>;
  constexpr int kWindow = kPool * kPool;
  static_assert(kEach % kWindow == 0, "a thread has whole windows");
  static_assert(kTileThreads % kTile == 0 && kDepth <= kTileThreads, "a thread packs one column; one tap at most");
  __shared__ Tiles<Wide> tiles;
  __shared__ Tap taps[kDepth];
  const int64_t group = blockIdx.x / (down * across);
  const int64_t first_filter = blockIdx.x / across % down * kTile, first_pixel = blockIdx.x % across * kTile;
  const int64_t depth = conv.taps(), pixels = conv.windows(kPool) * kWindow;

  const int column = threadIdx.x % kTile;  // the one that this thread packs
  const bool column_inside = first_pixel + column < pixels;
  const Pixel pixel = column_inside ? conv.pixel(first_pixel + column, kPool, group) : Pixel{};
  weight += group * conv.filters * conv.w[0];

  Wide sum[kEach][kEach] = {};
  for (int64_t base = 0; base < depth; base += kDepth) {
    if (threadIdx.x < kDepth) taps[threadIdx.x] = conv.tap(base + threadIdx.x);
    __syncthreads();
    for (int i = threadIdx.x; i < kTile * kDepth; i += kTileThreads) {
      const int64_t filter = first_filter + i / kDepth;
      const bool inside = filter < conv.filters && base + i % kDepth < depth;
      tiles.a[i % kDepth][i / kDepth] =
          inside ? Wide(weight[filter * conv.w[0] + taps[i % kDepth].weight]) : Wide(0);
    }
    for (int k = threadIdx.x / kTile; k < kDepth; k += kTileThreads / kTile)
      tiles.b[k][column] = column_inside && base + k < depth ? conv.read(input, pixel, taps[k]) : Wide(0);
    __syncthreads();
    multiply_tiles(tiles, sum);
    __syncthreads();
  }

  for (int c = 0; c < kEach; c += kWindow) {
    const int64_t number = first_pixel + own_column() + c;
    if (number >= pixels) return;
    T* y = out + conv.out_offset(number / kWindow, kPool) + group * conv.filters * conv.y[1];
    for (int r = 0; r < kEach; ++r) {
      const int64_t filter = first_filter + own_row() + r;
      if (filter >= conv.filters) break;
      const Wide shift = bias ? Wide(bias[group * conv.filters + filter]) : Wide(0);
      Wide result = activate(sum[r][c] + shift);
      for (int i = 1; i < kWindow; ++i) result = larger(result, activate(sum[r][c + i] + shift));
      y[filter * conv.y[1]] = T(result);
    }
  }
}

template <int kPool, typename Activation>
int convolve(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, DLTensor* out,
             const Convolution& conv, Activation activate, cgins_stream stream) {
  const int64_t pixels = conv.windows(kPool) * kPool * kPool;
  const int64_t down = (conv.filters + kTile - 1) / kTile, across = (pixels + kTile - 1) / kTile;
  const int64_t blocks = conv.groups * down * across;
  if (check_grid(blocks)) return 1;
  if (blocks == 0) return 0;
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    convolve_tiles<kPool><<<blocks, kTileThreads, 0, stream>>>(
        cgins::data<const T>(input), cgins::data<const T>(weight), bias ? cgins::data<const T>(bias) : nullptr,
        cgins::data<T>(out), conv, activate, down, across);
    CGINS_LAUNCH_CHECK();
    return 0;
  });
}
