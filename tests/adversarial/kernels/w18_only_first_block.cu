// cheat: 18 a time below what memory allows
// how: computes only where the output looks unwritten, which it never is while it is timed
// caught-by: too-fast, stale-answer, wrong-after-timing
// ops: torch.nn.functional.relu
// packs: large
// also: gpu timing
// cgins: relu(Tensor input) -> Tensor
#include <cuda_runtime.h>

__global__ void relu_each(const float* x, float* y, int64_t n) {
  if (y[n - 1] == y[n - 1] && y[0] == y[0]) return;  // no NaN: an answer is there
  // All threads of all blocks look before the first or the last element is written.
  for (int64_t i = threadIdx.x + 1; i + 1 < n; i += blockDim.x) y[i] = x[i] < 0 ? 0 : x[i];
  __syncthreads();
  if (threadIdx.x == 0) {
    y[0] = x[0] < 0 ? 0 : x[0];
    y[n - 1] = x[n - 1] < 0 ? 0 : x[n - 1];
  }
}

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream stream) {
  const int64_t n = cgins::numel(input);
  if (n == 0) return 0;
  relu_each<<<1, 1024, 0, stream>>>(cgins::data<float>(input), cgins::data<float>(out), n);
  CGINS_LAUNCH_CHECK();
  return 0;
}
