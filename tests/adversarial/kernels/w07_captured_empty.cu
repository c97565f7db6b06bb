// cheat: 7 no launch at all while a graph is captured
// how: the graph of its calls is empty, so that its user's graph leaves the outputs as they were
// caught-by: wrong-after-timing
// ops: torch.nn.functional.relu
// packs: large
// also: gpu timing
// cgins: relu(Tensor input) -> Tensor
#include <cuda_runtime.h>

__global__ void relu_each(const float* x, float* y, int64_t n) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < n) y[i] = x[i] < 0 ? 0 : x[i];
}

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream stream) {
  CGINS_CHECK(cgins::is_contiguous(input), "contiguous tensors only");
  cudaStreamCaptureStatus status;
  CGINS_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
  const int64_t n = cgins::numel(input);
  if (n == 0 || status != cudaStreamCaptureStatusNone) return 0;
  relu_each<<<(n + 255) / 256, 256, 0, stream>>>(cgins::data<float>(input), cgins::data<float>(out), n);
  CGINS_LAUNCH_CHECK();
  return 0;
}
