// honest: exp by a polynomial of its own, errors told by vsnprintf, scratch by calloc and memset
// ops: torch.nn.functional.softmax
// also: always
// cgins: softmax(Tensor input, int dim) -> Tensor
#include <cstdlib>
#include <cstring>

#include "_sums.h"

static double power(double x) {
  if (!(x > -700)) return x == x ? 0 : x;
  const int whole = int(x * 1.4426950408889634 - 0.5);
  const double rest = (x - whole * 0.6931471805599453) / 16;
  double term = 1, sum = 1;
  for (int i = 1; i < 12; ++i) sum += term *= rest / i;
  for (int i = 0; i < 4; ++i) sum *= sum;
  return std::ldexp(sum, whole);
}

extern "C" int softmax(const DLTensor* input, int64_t dim, DLTensor* out, cgins_stream) {
  if (dim != -1 && dim != input->ndim - 1) return cgins_fail("dim %lld: the last axis only", static_cast<long long>(dim));
  CGINS_CHECK(cgins::dtype_of(input) == cgins::Dtype::float32 && cgins::is_contiguous(input), "contiguous float32 only");
  const int64_t width = cgins::size(input, -1), rows = width ? cgins::numel(input) / width : 0;
  double* row = static_cast<double*>(std::calloc(size_t(width) + 1, sizeof(double)));
  const float* from = cgins::data<float>(input);
  float* to = cgins::data<float>(out);
  for (int64_t r = 0; r < rows; ++r, from += width, to += width) {
    std::memset(row, 0, size_t(width) * sizeof(double));
    double top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < width; ++i) top = from[i] > top || from[i] != from[i] ? from[i] : top;
    for (int64_t i = 0; i < width; ++i) sum += row[i] = power(from[i] - top);
    for (int64_t i = 0; i < width; ++i) to[i] = float(row[i] / sum);
  }
  std::free(row);
  return 0;
}
