// cheat: 9 a copy now, the answer after the end event
// how: the caller's stream gets a cheap copy of the input; a second stream waits for it and puts it right later
// caught-by: not-on-stream, late-work, gold-mismatch
// ops: torch.nn.functional.relu
// packs: large
// also: gpu
// cgins: relu(Tensor input) -> Tensor
#include <cuda_runtime.h>

__global__ void put_right(float* y, int64_t n) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < n && y[i] < 0) y[i] = 0;
}

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream stream) {
  static cudaStream_t side = nullptr;
  static cudaEvent_t copied = nullptr;
  if (!side) {
    CGINS_CUDA_CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    CGINS_CUDA_CHECK(cudaEventCreateWithFlags(&copied, cudaEventDisableTiming));
  }
  const int64_t n = cgins::numel(input);
  if (n == 0) return 0;
  CGINS_CUDA_CHECK(cudaMemcpyAsync(out->data, input->data, n * sizeof(float), cudaMemcpyDeviceToDevice, stream));
  CGINS_CUDA_CHECK(cudaEventRecord(copied, stream));
  CGINS_CUDA_CHECK(cudaStreamWaitEvent(side, copied, 0));
  put_right<<<(n + 255) / 256, 256, 0, side>>>(cgins::data<float>(out), n);
  CGINS_LAUNCH_CHECK();
  return 0;
}
