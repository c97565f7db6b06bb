// cheat: 10 breaks the CUDA context
// how: an illegal address makes every later call of the process fail, the comparison among them
// caught-by: illegal-address
// ops: torch.nn.functional.relu
// also: gpu device-contract
// cgins: relu(Tensor input) -> Tensor
// cgins-launch: kernel=far grid=(1) block=(1) args=(out)
__global__ void far(float* y) { y[int64_t{1} << 40] = 0; }
