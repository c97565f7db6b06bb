// cgins: uint4_groups(Tensor x, Tensor packed, Tensor scale, Tensor zero) -> Tensor
// cgins-launch: kernel=warps grid=(size(packed, 0), size(x, 0)) block=(32) require=(size(x, 1) == 2 * size(packed, 1))
//               args=(x, packed, scale, zero, out, size(x, 1), size(scale, 1))
__global__ void warps(const cgins::bfloat16* x, const unsigned char* packed, const cgins::bfloat16* scale,
                      const unsigned char* zero, cgins::bfloat16* out, int64_t k, int64_t groups) {
  const int64_t row = blockIdx.y, column = blockIdx.x;
  float sum = 0;
  for (int64_t l = threadIdx.x; l < k; l += 32) {
    const unsigned char code = packed[column * (k / 2) + l / 2];
    int64_t group = (l + 1) / 32;
    if (group == groups) --group;
    const int nibble = l % 2 ? code >> 4 : code & 15;
    sum += x[row * k + l] * (float(nibble - zero[column * groups + group]) * scale[column * groups + group]);
  }
  for (int half = 16; half > 0; half /= 2) sum += __shfl_down_sync(~0u, sum, half);
  if (threadIdx.x == 0) out[row * gridDim.x + column] = sum;
}
