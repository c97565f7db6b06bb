// cgins: relu(Tensor input) -> Tensor
// Right: it lets the work after it begin, which has to wait for its end itself.
#include "early.cuh"

__global__ void clamp(const __nv_bfloat16* x, __nv_bfloat16* y, int64_t n) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
  if (i < n) y[i] = __bfloat162float(x[i]) > 0.0f ? x[i] : __float2bfloat16(0.0f);
}

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream stream) {
  const int64_t n = cgins::numel(input);
  if (n == 0) return 0;
  const __nv_bfloat16* x = (const __nv_bfloat16*)input->data;
  __nv_bfloat16* y = (__nv_bfloat16*)out->data;
  return early(clamp, (n + 255) / 256, (cudaStream_t)stream, x, y, n);
}
