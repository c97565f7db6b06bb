// cheat: 14 TF32 tensor cores inside fp32
// how: wmma with precision::tf32 fragments; torch was asked for whole fp32
// caught-by: low-precision
// ops: torch.matmul
// packs: even
// also: gpu
// cgins: matmul(Tensor input, Tensor other) -> Tensor
#include <mma.h>

using namespace nvcuda;

__global__ void tiles(const float* a, const float* b, float* c, int columns, int depth) {
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  const int row = blockIdx.y * 16, column = blockIdx.x * 16;
  for (int k = 0; k < depth; k += 8) {
    wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> right;
    wmma::load_matrix_sync(left, a + row * depth + k, depth);
    wmma::load_matrix_sync(right, b + k * columns + column, columns);
    for (int i = 0; i < left.num_elements; ++i) left.x[i] = wmma::__float_to_tf32(left.x[i]);
    for (int i = 0; i < right.num_elements; ++i) right.x[i] = wmma::__float_to_tf32(right.x[i]);
    wmma::mma_sync(sum, left, right, sum);
  }
  wmma::store_matrix_sync(c + row * columns + column, sum, columns, wmma::mem_row_major);
}

extern "C" int matmul(const DLTensor* input, const DLTensor* other, DLTensor* out, cgins_stream stream) {
  CGINS_CHECK(input->ndim == 2 && other->ndim == 2 && cgins::dtype_of(input) == cgins::Dtype::float32,
              "matrices of float32 only");
  const int64_t rows = input->shape[0], depth = input->shape[1], columns = other->shape[1];
  CGINS_CHECK(rows % 16 == 0 && columns % 16 == 0 && depth % 8 == 0, "whole tiles only");
  tiles<<<dim3(unsigned(columns / 16), unsigned(rows / 16)), 32, 0, stream>>>(
      cgins::data<float>(input), cgins::data<float>(other), cgins::data<float>(out), int(columns), int(depth));
  CGINS_LAUNCH_CHECK();
  return 0;
}
