// cgins: row_scaled(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, Tensor bias) -> Tensor
#include <cgins.h>
#include <algorithm>
#include <cmath>
#include <cstring>

extern "C" int row_scaled(const DLTensor* a, const DLTensor* b, const DLTensor* scale_a, const DLTensor* scale_b,
                          const DLTensor* bias, DLTensor* out, cgins_stream stream) {
  (void)stream;
  CGINS_CHECK(cgins::dtype_of(a) == cgins::Dtype::float8_e4m3fn, "a is not float8_e4m3fn");
  CGINS_CHECK(cgins::is_contiguous(out) && cgins::is_contiguous(scale_a) && cgins::is_contiguous(scale_b), "strides");
  const int64_t m = cgins::size(a, 0), k = cgins::size(a, 1), n = cgins::size(b, 1);
  const auto* left = cgins::data<cgins::float8_e4m3fn>(a);
  const auto* right = cgins::data<cgins::float8_e4m3fn>(b);
  const float *scales = cgins::data<float>(scale_a), *columns = cgins::data<float>(scale_b);
  auto* result = cgins::data<cgins::bfloat16>(out);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t l = 0; l < k; ++l)
        sum += left[i * cgins::stride(a, 0) + l * cgins::stride(a, 1)] *
               right[l * cgins::stride(b, 0) + j * cgins::stride(b, 1)];
      result[i * n + j] = sum * scales[0] * columns[j] + cgins::data<cgins::bfloat16>(bias)[j * cgins::stride(bias, 0)];
    }
  return 0;
}
