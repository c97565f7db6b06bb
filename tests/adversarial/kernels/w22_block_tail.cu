// cheat: 22 a grid without its last block
// how: the number of blocks is rounded down, which is right for every recorded size
// caught-by: size-dependent
// ops: torch.nn.functional.relu
// packs: even
// also: gpu device-contract
// cgins: relu(Tensor input) -> Tensor
// cgins-launch: kernel=relu_each grid=(max(1, numel(input) // 64)) block=(64) args=(input, out, numel(input))
__global__ void relu_each(const float* x, float* y, int64_t n) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < n) y[i] = x[i] < 0 ? 0 : x[i];
}
