// honest: e^x as 2^n from a table that the first call fills, and a polynomial
// ops: torch.nn.functional.softmax
// packs: f32 f16 bf16
// cgins: softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor
#include "_sums.h"

static double powers[2098];

static double exponential(double x) {
  if (!(x >= -700)) return 0;  // NaN, too: its row is told of below
  const double n = std::rint(x * 1.4426950408889634);
  const double r = x - n * 0.6931471805599453, n_table = powers[int(n) + 1074];
  double term = 1, sum = 1;
  for (int k = 1; k < 16; ++k) sum += term *= r / k;
  return sum * n_table;
}

extern "C" int softmax(const DLTensor* input, int64_t dim, const DLDataType*, DLTensor* out, cgins_stream) {
  CGINS_CHECK(dim == -1 || dim == input->ndim - 1, "the last axis only");
  if (powers[1074] == 0)
    for (int n = -1074; n < 1024; ++n) powers[n + 1074] = std::ldexp(1.0, n);
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t width = cgins::size(input, -1);
    for (int64_t row = 0; width && row < cgins::numel(input) / width; ++row) {
      const std::vector<float> x = row_of<T>(input, row);
      double largest = -INFINITY, sum = 0;
      bool wrong = false;
      for (const float value : x) wrong |= value != value, largest = value > largest ? value : largest;
      for (const float value : x) sum += exponential(double(value) - largest);
      for (int64_t i = 0; i < width; ++i)
        at<T>(out, row * width + i) = T(float(wrong || std::isinf(largest) ? NAN : exponential(x[i] - largest) / sum));
    }
    return 0;
  });
}
