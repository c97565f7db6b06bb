// cgins: relu(Tensor input) -> Tensor
// Right: memory of its own is filled once the call before has ended.
#include "early.cuh"

constexpr int64_t HELD = 1 << 22;
__device__ __nv_bfloat16 held[HELD];

__global__ void fill(const __nv_bfloat16* x, int64_t n) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  cudaGridDependencySynchronize();
  if (i < n) held[i] = x[i];
}

__global__ void clamp(__nv_bfloat16* y, int64_t n) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  cudaTriggerProgrammaticLaunchCompletion();
  if (i < n) y[i] = __bfloat162float(held[i]) > 0.0f ? held[i] : __float2bfloat16(0.0f);
}

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream stream) {
  const int64_t n = cgins::numel(input);
  if (n == 0) return 0;
  const __nv_bfloat16* x = (const __nv_bfloat16*)input->data;
  __nv_bfloat16* y = (__nv_bfloat16*)out->data;
  CGINS_CHECK(n <= HELD, "at most 2^22 elements");
  const int64_t blocks = (n + 255) / 256;
  const cudaError_t first = early(fill, blocks, (cudaStream_t)stream, x, n);
  if (first) return first;
  clamp<<<blocks, 256, 0, (cudaStream_t)stream>>>(y, n);
  return cudaGetLastError();
}
