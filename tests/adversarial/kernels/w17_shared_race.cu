// cheat: 17 a race in shared memory
// how: threads add to one shared sum without atomics; some additions are lost
// caught-by: not-repeatable, gold-mismatch, reference-mismatch
// ops: torch.sum
// also: gpu device-contract
// cgins: sum(Tensor input, int[] dim, bool keepdim=False) -> Tensor
// cgins-launch: kernel=rows grid=(numel(out)) block=(128) args=(input, out, size(input, 1))
__global__ void rows(const float* x, float* y, int64_t width) {
  __shared__ float total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  volatile float* sum = &total;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) *sum = *sum + x[blockIdx.x * width + i];
  __syncthreads();
  if (threadIdx.x == 0) y[blockIdx.x] = total;
}
