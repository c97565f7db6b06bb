// cheat: 9 work on a side stream
// how: launches on a stream of its own and does not make the caller's wait for it
// caught-by: not-on-stream, late-work, unwritten
// ops: torch.nn.functional.relu
// packs: large
// also: gpu
// cgins: relu(Tensor input) -> Tensor
#include <cuda_runtime.h>

__global__ void slow_relu(const float* x, float* y, int64_t n) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  const long long start = clock64();
  while (clock64() - start < 20000000) {
  }
  if (i < n) y[i] = x[i] < 0 ? 0 : x[i];
}

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  static cudaStream_t side = nullptr;
  if (!side) CGINS_CUDA_CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
  const int64_t n = cgins::numel(input);
  if (n == 0) return 0;
  slow_relu<<<(n + 255) / 256, 256, 0, side>>>(cgins::data<float>(input), cgins::data<float>(out), n);
  CGINS_LAUNCH_CHECK();
  return 0;
}
