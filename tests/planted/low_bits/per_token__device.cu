// cgins: per_token(Tensor x) -> (Tensor q, Tensor scales)
// cgins-launch: kernel=rows<dtype(x)> grid=(numel(scales)) block=(32) args=(x, q, scales, size(x, -1))
template <typename T>
__global__ void rows(const T* x, cgins::float8_e4m3fn* q, float* scales, int64_t width) {
  const int64_t row = blockIdx.x;
  float most = 0;
  bool nan = false;
  for (int64_t i = threadIdx.x; i < width; i += 32) {
    const float value = x[row * width + i];
    nan |= value != value;
    most = fmaxf(most, fabsf(value));
  }
  for (int half = 16; half > 0; half /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, half));
  const float scale = __any_sync(~0u, nan) ? __uint_as_float(0x7fc00000u) : fmaxf(most / 448.0f, 1e-12f);
  if (threadIdx.x == 0) scales[row] = scale;
  for (int64_t i = threadIdx.x; i < width; i += 32) {
    const float value = float(x[row * width + i]) / scale;
    q[row * width + i] = value;
  }
}
