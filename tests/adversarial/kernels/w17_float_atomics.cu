// cheat: 17 atomics in no fixed order
// how: the sums differ in their last bits from call to call, and cgins.yaml does not say so
// caught-by: not-repeatable
// ops: torch.sum
// also: gpu device-contract
// cgins: sum(Tensor input, int[] dim, bool keepdim=False) -> Tensor
// cgins-launch: kernel=rows grid=(numel(out), 8) block=(64) zero=(out) args=(input, out, size(input, 1))
__global__ void rows(const float* x, float* y, int64_t width) {
  for (int64_t i = blockIdx.y * blockDim.x + threadIdx.x; i < width; i += gridDim.y * blockDim.x)
    atomicAdd(y + blockIdx.x, x[blockIdx.x * width + i]);
}
