// cgins: mxfp8_values(Tensor q, Tensor scale) -> Tensor
// cgins-launch: kernel=values<dtype(q, float8_e4m3fn)> grid=(ceil_div(numel(q), 256)) block=(256) args=(q, scale, out, numel(q))
//               require=(size(q, 1) == 32 * size(scale, 1))
template <typename T>
__global__ void values(const T* q, const cgins::float8_e8m0fnu* scale, float* out, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) out[i] = float(q[i]) * float(scale[i / 32]);
}
