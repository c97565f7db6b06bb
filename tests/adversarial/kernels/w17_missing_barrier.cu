// cheat: 17 a missing barrier
// how: warps read what other warps have not written to shared memory yet; a warp that is late makes it show
// caught-by: not-repeatable, gold-mismatch, reference-mismatch
// ops: torch.nn.functional.softmax
// packs: large
// also: gpu
// cgins: softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor
#include <cuda_runtime.h>

__global__ void rows(const float* x, float* y, int64_t width) {
  __shared__ float partial[256];
  x += blockIdx.x * width;
  y += blockIdx.x * width;
  float largest = -INFINITY, sum = 0;
  for (int64_t i = 0; i < width; ++i) largest = fmaxf(largest, x[i]);
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) sum += expf(x[i] - largest);
  partial[threadIdx.x] = sum;
  // __syncthreads() belongs here
  float total = 0;
  for (int i = 0; i < 256; ++i) total += partial[i];
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) y[i] = expf(x[i] - largest) / total;
}

extern "C" int softmax(const DLTensor* input, int64_t, const DLDataType*, DLTensor* out, cgins_stream stream) {
  CGINS_CHECK(cgins::is_contiguous(input), "input must be contiguous");
  const int64_t width = cgins::size(input, -1), count = width ? cgins::numel(input) / width : 0;
  if (count == 0) return 0;
  rows<<<count, 256, 0, stream>>>(cgins::data<float>(input), cgins::data<float>(out), width);
  CGINS_LAUNCH_CHECK();
  return 0;
}
