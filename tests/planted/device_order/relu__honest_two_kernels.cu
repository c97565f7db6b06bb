// cgins: relu(Tensor input) -> Tensor
// Right: both kernels wait before they read.
#include "early.cuh"

__global__ void copy(const __nv_bfloat16* x, __nv_bfloat16* y, int64_t n) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
  if (i < n) y[i] = x[i];
}

__global__ void clamp(__nv_bfloat16* y, int64_t n) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  cudaGridDependencySynchronize();
  if (i < n && __bfloat162float(y[i]) < 0.0f) y[i] = __float2bfloat16(0.0f);
}

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream stream) {
  const int64_t n = cgins::numel(input);
  if (n == 0) return 0;
  const __nv_bfloat16* x = (const __nv_bfloat16*)input->data;
  __nv_bfloat16* y = (__nv_bfloat16*)out->data;
  const int64_t blocks = (n + 255) / 256;
  const cudaError_t first = early(copy, blocks, (cudaStream_t)stream, x, y, n);
  return first ? first : early(clamp, blocks, (cudaStream_t)stream, y, n);
}
