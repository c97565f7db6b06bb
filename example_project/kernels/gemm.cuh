// The heart of a matrix product on the GPU: a block of 64 threads makes 32×32 sums, each thread 4×4 of them.
#pragma once
#include <cgins.h>

constexpr int kTile = 32;         // rows, and columns, of a block's output
constexpr int kDepth = 16;        // how much of the sum is in shared memory at once
constexpr int kEach = 4;          // rows, and columns, of a thread's output
constexpr int kAcross = kTile / kEach;
constexpr int kTileThreads = kAcross * kAcross;

// Parts of both factors, k first. Rows are padded: threads that fill a column then write to different banks.
template <typename Wide>
struct Tiles {
  Wide a[kDepth][kTile + 4], b[kDepth][kTile + 4];
};

// First row and column, within the block's output, of this thread's sums.
__device__ inline int own_row() { return threadIdx.x / kAcross * kEach; }
__device__ inline int own_column() { return threadIdx.x % kAcross * kEach; }

template <typename Wide>
__device__ void multiply_tiles(const Tiles<Wide>& tiles, Wide (&sum)[kEach][kEach]) {
#pragma unroll
  for (int k = 0; k < kDepth; ++k) {
    Wide a[kEach], b[kEach];
    for (int i = 0; i < kEach; ++i) a[i] = tiles.a[k][own_row() + i];
    for (int i = 0; i < kEach; ++i) b[i] = tiles.b[k][own_column() + i];
    for (int r = 0; r < kEach; ++r)
      for (int c = 0; c < kEach; ++c) sum[r][c] += a[r] * b[c];
  }
}
