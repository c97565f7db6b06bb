// honest: exp of glibc's vector library, as omp simd calls it, with lanes for the sum
// ops: torch.nn.functional.softmax
// packs: f32 even tiny
// yaml: {flags: [-fno-math-errno]}
// cgins: softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor
#include <math.h>

#include "_elements.h"

extern "C" int softmax(const DLTensor* input, int64_t dim, const DLDataType* dtype, DLTensor* out, cgins_stream) {
  CGINS_CHECK(!dtype, "no other dtype");
  CGINS_CHECK(input->ndim > 0 && (dim == -1 || dim == input->ndim - 1), "the last axis only");
  CGINS_CHECK(cgins::dtype_of(input) == cgins::Dtype::float32 && cgins::is_contiguous(input), "contiguous float32 only");
  const int64_t width = cgins::size(input, -1);
  if (cgins::numel(input) == 0) return 0;
  for (int64_t first = 0; first < cgins::numel(input); first += width) {
    const float* x = cgins::data<float>(input) + first;
    float* y = cgins::data<float>(out) + first;
    float top = -INFINITY;
    bool wrong = false;
    for (int64_t i = 0; i < width; ++i) {
      wrong |= x[i] != x[i];
      top = x[i] > top ? x[i] : top;
    }
    if (wrong || !std::isfinite(top)) {
      for (int64_t i = 0; i < width; ++i) y[i] = NAN;
      continue;
    }
    float sum = 0;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) y[i] = expf(x[i] - top);
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < width; ++i) sum += y[i];
    for (int64_t i = 0; i < width; ++i) y[i] /= sum;
  }
  return 0;
}
