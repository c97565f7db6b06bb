// cgins: relu(Tensor input) -> Tensor
// Wrong: it waits for the work ahead of it once it has read its input.
#include "early.cuh"

__global__ void clamp(const __nv_bfloat16* x, __nv_bfloat16* y, int64_t n) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  const __nv_bfloat16 value = i < n ? x[i] : __float2bfloat16(0.0f);
  cudaGridDependencySynchronize();
  if (i < n) y[i] = __bfloat162float(value) > 0.0f ? value : __float2bfloat16(0.0f);
}

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream stream) {
  const int64_t n = cgins::numel(input);
  if (n == 0) return 0;
  const __nv_bfloat16* x = (const __nv_bfloat16*)input->data;
  __nv_bfloat16* y = (__nv_bfloat16*)out->data;
  return early(clamp, (n + 255) / 256, (cudaStream_t)stream, x, y, n);
}
