// cgins: relu(Tensor input, bool inplace=False) -> Tensor
#include <cgins.h>

__global__ void relu_elements(const float* x, float* y, int64_t count) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < count) y[i] = x[i] < 0 ? 0 : x[i];
}

extern "C" int relu(const DLTensor* input, bool, DLTensor* out, cgins_stream stream) {
  CGINS_CHECK(cgins::is_contiguous(input), "contiguous tensors only");
  const int64_t count = cgins::numel(input);
  const unsigned blocks = unsigned((count + 127) / 128);
  relu_elements<<<blocks, 128, 0, cudaStream_t(stream)>>>(cgins::data<float>(input), cgins::data<float>(out), count);
  return int(cudaGetLastError());
}
