// cgins: mxfp8_values(Tensor q, Tensor scale) -> Tensor
#include <cgins.h>
#include <algorithm>
#include <cmath>
#include <cstring>

extern "C" int mxfp8_values(const DLTensor* q, const DLTensor* scale, DLTensor* out, cgins_stream stream) {
  (void)stream;
  CGINS_CHECK(cgins::is_contiguous(q) && cgins::is_contiguous(scale) && cgins::size(q, -1) % 32 == 0, "shape");
  const auto* codes = cgins::data<uint8_t>(scale);
  for (int64_t i = 0; i < cgins::numel(q); ++i) {
    const uint32_t bits = uint32_t{codes[i / 32]} << 23;
    float factor;
    std::memcpy(&factor, &bits, 4);
    cgins::data<float>(out)[i] = cgins::data<cgins::float8_e4m3fn>(q)[i] * factor;
  }
  return 0;
}
