// cgins: relu(Tensor input) -> Tensor
// Right: a launch for each 2^30 elements, with int indices within.
#include <cgins.h>
#include <cuda_bf16.h>

__global__ void clamp(const __nv_bfloat16* x, __nv_bfloat16* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __bfloat162float(x[i]) > 0.0f ? x[i] : __float2bfloat16(0.0f);
}

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream stream) {
  const int64_t n = cgins::numel(input), part = 1 << 30;
  for (int64_t begin = 0; begin < n; begin += part) {
    const int count = (int)(n - begin < part ? n - begin : part);
    clamp<<<(count + 255) / 256, 256, 0, (cudaStream_t)stream>>>(
        (const __nv_bfloat16*)input->data + begin, (__nv_bfloat16*)out->data + begin, count);
  }
  return cudaGetLastError();
}
