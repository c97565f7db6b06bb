// cheat: 7 nothing while a graph is captured
// how: timing captures calls into a CUDA graph, a check does not: there is nothing in the graph
// caught-by: wrong-after-timing, too-fast
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
  if (n == 0) return 0;
  const int64_t done = status == cudaStreamCaptureStatusNone ? n : 1;
  relu_each<<<(done + 255) / 256, 256, 0, stream>>>(cgins::data<float>(input), cgins::data<float>(out), done);
  CGINS_LAUNCH_CHECK();
  return 0;
}
