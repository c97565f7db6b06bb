// cgins: matmul(Tensor input, Tensor other) -> Tensor
#include "gemm.cuh"
#include "matmul.h"

// A tile of the output a block. Blocks are numbered in one dimension, which alone may be as long as it takes.
template <typename T>
__global__ void __launch_bounds__(kTileThreads)
    matmul_tiles(const T* input, const T* other, T* out, Product p, int64_t down, int64_t across) {
  using Wide = cgins::accumulator<T>;
  __shared__ Tiles<Wide> tiles;
  const Offsets<3> matrix = p.batch.offsets(blockIdx.x / (down * across));
  const int64_t first_row = blockIdx.x / across % down * kTile, first_column = blockIdx.x % across * kTile;
  input += matrix[1], other += matrix[2], out += matrix[0];
  Wide sum[kEach][kEach] = {};
  for (int64_t base = 0; base < p.depth; base += kDepth) {
    for (int i = threadIdx.x; i < kTile * kDepth; i += kTileThreads) {
      // Neighbouring threads read along k in input, along columns in other: as row-major matrices lie.
      const int64_t row = first_row + i / kDepth, k = base + i % kDepth;
      tiles.a[i % kDepth][i / kDepth] =
          row < p.rows && k < p.depth ? Wide(input[row * p.input_row + k * p.input_column]) : Wide(0);
      const int64_t column = first_column + i % kTile, l = base + i / kTile;
      tiles.b[i / kTile][i % kTile] =
          column < p.columns && l < p.depth ? Wide(other[l * p.other_row + column * p.other_column]) : Wide(0);
    }
    __syncthreads();
    multiply_tiles(tiles, sum);
    __syncthreads();
  }
  for (int r = 0; r < kEach; ++r)
    for (int c = 0; c < kEach; ++c) {
      const int64_t row = first_row + own_row() + r, column = first_column + own_column() + c;
      if (row < p.rows && column < p.columns) out[row * p.out_row + column * p.out_column] = T(sum[r][c]);
    }
}

extern "C" int matmul(const DLTensor* input, const DLTensor* other, DLTensor* out, cgins_stream stream) {
  Product product;
  if (describe(input, other, out, &product)) return 1;
  const int64_t down = (product.rows + kTile - 1) / kTile, across = (product.columns + kTile - 1) / kTile;
  const int64_t blocks = product.batch.count * down * across;
  if (check_grid(blocks)) return 1;
  if (blocks == 0) return 0;
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    matmul_tiles<<<blocks, kTileThreads, 0, stream>>>(cgins::data<const T>(input), cgins::data<const T>(other),
                                                      cgins::data<T>(out), product, down, across);
    CGINS_LAUNCH_CHECK();
    return 0;
  });
}
