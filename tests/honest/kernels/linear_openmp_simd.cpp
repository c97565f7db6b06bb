// honest: rows by threads, products by vector instructions, in whatever order these add
// ops: torch.nn.functional.linear
// packs: f32 even
// cgins: linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor
#include <omp.h>

#include "_sums.h"

extern "C" int linear(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::dtype_of(input) == cgins::Dtype::float32, "float32 only");
  CGINS_CHECK(cgins::is_contiguous(input) && cgins::is_contiguous(weight), "dense tensors only");
  const int64_t depth = cgins::size(input, -1), columns = weight->shape[0];
  const int64_t rows = depth ? cgins::numel(input) / depth : 0;
  const float *x = cgins::data<float>(input), *w = cgins::data<float>(weight);
#pragma omp parallel for
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t n = 0; n < columns; ++n) {
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t k = 0; k < depth; ++k) sum += x[row * depth + k] * w[n * depth + k];
      at<float>(out, row * columns + n) = sum + (bias ? at<float>(bias, n) : 0);
    }
  return 0;
}
