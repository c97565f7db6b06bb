// cgins: e4m3_static(Tensor x, float scale) -> Tensor
// The carry of a mantissa that rounds up goes into the exponent.
#include <cgins.h>
#include <cmath>

static unsigned char quantized(float value) {
  const unsigned char sign = std::signbit(value) ? 0x80 : 0;
  const float size = std::fabs(value);
  if (std::isnan(value)) return 0x7f;
  if (size >= 448.0f) return sign | 0x7e;
  if (size < 0x1p-6f) return sign | static_cast<unsigned char>(std::nearbyint(size * 0x1p9f));
  int exponent;
  const float mantissa = std::frexp(size, &exponent);  // in [0.5, 1)
  int bits = static_cast<int>(std::nearbyint(mantissa * 16.0f)) - 8;
  return sign | static_cast<unsigned char>(((exponent + 6) << 3) + bits);
}

extern "C" int e4m3_static(const DLTensor* x, double scale, DLTensor* out, cgins_stream stream) {
  (void)stream;
  CGINS_CHECK(cgins::is_contiguous(x), "x is not contiguous");
  const float* values = cgins::data<float>(x);
  unsigned char* codes = cgins::data<unsigned char>(out);
  for (int64_t i = 0; i < cgins::numel(x); ++i) codes[i] = quantized(values[i] / static_cast<float>(scale));
  return 0;
}
