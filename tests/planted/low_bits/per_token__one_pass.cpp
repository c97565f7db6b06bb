// cgins: per_token(Tensor x) -> (Tensor, Tensor)
#include <cgins.h>
#include <algorithm>
#include <cmath>

extern "C" int per_token(const DLTensor* x, DLTensor* q, DLTensor* scales, cgins_stream stream) {
  (void)stream;
  CGINS_CHECK(cgins::is_contiguous(x), "x is not contiguous");
  CGINS_CHECK(cgins::dtype_of(q) == cgins::Dtype::float8_e4m3fn, "q is not float8_e4m3fn");
  const int64_t width = cgins::size(x, -1), rows = width ? cgins::numel(x) / width : 0;
  return cgins::dispatch_floating(x, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t row = 0; row < rows; ++row) {
      const T* values = cgins::data<T>(x) + row * width;
      cgins::float8_e4m3fn* codes = cgins::data<cgins::float8_e4m3fn>(q) + row * width;
      float most = 0.0f;
      bool nan = false;
      for (int64_t i = 0; i < width; ++i) {
        const float value = static_cast<float>(values[i]);
        nan |= std::isnan(value);
        most = std::max(most, std::fabs(value));
      }
      const float scale = nan ? NAN : std::max(most / 448.0f, 1e-12f);
      cgins::data<float>(scales)[row] = scale;
      const float factor = 1.0f / scale;
      for (int64_t i = 0; i < width; ++i) {
        const float value = static_cast<float>(values[i]) * factor;
        codes[i] = std::isnan(value) ? value : std::min(448.0f, std::max(-448.0f, value));
      }
    }
    return 0;
  });
}
