// cheat: 17 writes past its shared memory
// how: a row of 37 in an array of 32: what lies behind it is another row's
// caught-by: not-repeatable, gold-mismatch, reference-mismatch, illegal-address
// ops: torch.nn.functional.softmax
// also: gpu device-contract
// cgins: softmax(Tensor input, int dim) -> Tensor
// cgins-launch: kernel=rows grid=(ceil_div(numel(input) // size(input, 1), 2)) block=(2)
//               args=(input, out, size(input, 1), numel(input) // size(input, 1))
__global__ void rows(const float* x, float* y, int64_t width, int64_t count) {
  __shared__ float kept[2 * 32];
  const int64_t row = blockIdx.x * 2 + threadIdx.x;
  if (row >= count) return;
  float* mine = kept + threadIdx.x * 32;
  float sum = 0;
  for (int64_t i = 0; i < width; ++i) sum += mine[i] = expf(x[row * width + i]);
  for (int64_t i = 0; i < width; ++i) y[row * width + i] = mine[i] / sum;
}
