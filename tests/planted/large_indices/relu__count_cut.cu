// cgins: relu(Tensor input) -> Tensor
// Wrong: the number of elements goes through an unsigned int, so that only n mod 2^32 of them are written.
#include <cgins.h>
#include <cuda_bf16.h>

__global__ void clamp(const __nv_bfloat16* x, __nv_bfloat16* y, unsigned n) {
  for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
    y[i] = __bfloat162float(x[i]) > 0.0f ? x[i] : __float2bfloat16(0.0f);
}

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream stream) {
  clamp<<<1024, 256, 0, (cudaStream_t)stream>>>(
      (const __nv_bfloat16*)input->data, (__nv_bfloat16*)out->data, (unsigned)cgins::numel(input));
  return cudaGetLastError();
}
