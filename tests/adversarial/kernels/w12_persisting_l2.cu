// cheat: 12 a persisting carve-out of the L2 cache
// how: what the window covers survives the flush between timed calls
// caught-by: l2-carve-out
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
  const int64_t n = cgins::numel(input);
  if (n == 0) return 0;
  static bool carved = false;
  if (!carved) {
    int most = 0;
    CGINS_CUDA_CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxPersistingL2CacheSize, 0));
    CGINS_CUDA_CHECK(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, size_t(most) / 2));
    carved = true;
  }
  cudaStreamAttrValue value = {};
  value.accessPolicyWindow.base_ptr = input->data;
  value.accessPolicyWindow.num_bytes = n * sizeof(float);
  value.accessPolicyWindow.hitRatio = 1.0f;
  value.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
  value.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
  CGINS_CUDA_CHECK(cudaStreamSetAttribute(stream, cudaStreamAttributeAccessPolicyWindow, &value));
  relu_each<<<(n + 255) / 256, 256, 0, stream>>>(cgins::data<float>(input), cgins::data<float>(out), n);
  CGINS_LAUNCH_CHECK();
  return 0;
}
