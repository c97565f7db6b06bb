// cheat: 24 leaks device memory each call
// how: scratch memory by cudaMalloc that is never freed, which no counter of torch's allocator sees
// caught-by: memory-leak
// ops: torch.nn.functional.relu
// also: gpu
// cgins: relu(Tensor input) -> Tensor
#include <cuda_runtime.h>

__global__ void relu_each(const float* x, float* y, int64_t n) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < n) y[i] = x[i] < 0 ? 0 : x[i];
}

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream stream) {
  void* lost = nullptr;
  CGINS_CUDA_CHECK(cudaMalloc(&lost, size_t{8} << 20));
  const int64_t n = cgins::numel(input);
  if (n == 0) return 0;
  relu_each<<<(n + 255) / 256, 256, 0, stream>>>(cgins::data<float>(input), cgins::data<float>(out), n);
  CGINS_LAUNCH_CHECK();
  return 0;
}
