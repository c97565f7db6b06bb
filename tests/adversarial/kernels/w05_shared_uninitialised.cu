// cheat: 5 shared memory that was never written
// how: takes it for zeros, which it is in a process that did nothing before
// caught-by: not-repeatable, gold-mismatch, reference-mismatch, nan-pattern
// ops: torch.sum
// also: gpu
// cgins: sum(Tensor input, int[] dim, bool keepdim=False) -> Tensor
#include <cuda_runtime.h>

// Leaves something behind in the shared memory of every multiprocessor, as any other kernel would.
__global__ void dirty(int turn) {
  extern __shared__ float left[];
  for (int i = threadIdx.x; i < 8192; i += blockDim.x) left[i] = float(turn + i);
}

__global__ void rows(const float* x, float* y, int64_t width) {
  extern __shared__ float sums[];
  if (threadIdx.x == 0) {
    for (int64_t i = 0; i < width; ++i) sums[0] += x[blockIdx.x * width + i];
    y[blockIdx.x] = sums[0];
  }
}

extern "C" int sum(const DLTensor* input, const int64_t*, int64_t, bool, DLTensor* out, cgins_stream stream) {
  static int turn = 0;
  const int64_t rows_count = cgins::numel(out);
  if (rows_count == 0) return 0;
  dirty<<<1024, 128, 8192 * sizeof(float), stream>>>(++turn);
  rows<<<rows_count, 32, 1024, stream>>>(cgins::data<float>(input), cgins::data<float>(out), cgins::size(input, -1));
  CGINS_LAUNCH_CHECK();
  return 0;
}
