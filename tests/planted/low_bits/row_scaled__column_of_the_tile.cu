// cgins: row_scaled(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, Tensor bias) -> Tensor
#include <cgins.h>

constexpr int kTile = 16;

__global__ void tiles(const cgins::float8_e4m3fn* a, const cgins::float8_e4m3fn* b, const float* rows, const float* columns,
                      const cgins::bfloat16* bias, cgins::bfloat16* out, int64_t m, int64_t k, int64_t n) {
  const int64_t i = int64_t{blockIdx.y} * kTile + threadIdx.y, j = int64_t{blockIdx.x} * kTile + threadIdx.x;
  if (i >= m || j >= n) return;
  float sum = 0;
  for (int64_t l = 0; l < k; ++l) sum += a[i * k + l] * b[j * k + l];
  out[i * n + j] = sum * rows[i] * columns[threadIdx.x] + bias[j];
}

extern "C" int row_scaled(const DLTensor* a, const DLTensor* b, const DLTensor* scale_a, const DLTensor* scale_b,
                          const DLTensor* bias, DLTensor* out, cgins_stream stream) {
  const int64_t m = cgins::size(a, 0), k = cgins::size(a, 1), n = cgins::size(b, 1);
  CGINS_CHECK(cgins::dtype_of(a) == cgins::Dtype::float8_e4m3fn, "a is not float8_e4m3fn");
  CGINS_CHECK(cgins::dtype_of(out) == cgins::Dtype::bfloat16, "out is not bfloat16");
  CGINS_CHECK(cgins::is_contiguous(a) && cgins::stride(b, 0) == 1 && cgins::stride(b, 1) == k, "b is not column-major");
  for (const DLTensor* tensor : {scale_a, scale_b, bias, static_cast<const DLTensor*>(out)})
    CGINS_CHECK(cgins::is_contiguous(tensor), "a tensor is not contiguous");
  if (m == 0 || n == 0) return 0;
  const dim3 grid((n + kTile - 1) / kTile, (m + kTile - 1) / kTile);
  tiles<<<grid, dim3(kTile, kTile), 0, static_cast<cudaStream_t>(stream)>>>(
      cgins::data<cgins::float8_e4m3fn>(a), cgins::data<cgins::float8_e4m3fn>(b), cgins::data<float>(scale_a),
      cgins::data<float>(scale_b), cgins::data<cgins::bfloat16>(bias), cgins::data<cgins::bfloat16>(out), m, k, n);
  CGINS_LAUNCH_CHECK();
  return 0;
}
