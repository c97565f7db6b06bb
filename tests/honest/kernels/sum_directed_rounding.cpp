// honest: a sum rounded down and one rounded up, whose middle is the answer; the rounding mode is put back
// ops: torch.sum
// packs: f32 f16 bf16
// yaml: {flags: [-frounding-math]}
// cgins: sum(Tensor input, int[] dim, bool keepdim=False) -> Tensor
#include <cfenv>

#include "_elements.h"

namespace {
class Rounding {
 public:
  explicit Rounding(int mode) : before_(std::fegetround()) { std::fesetround(mode); }
  ~Rounding() { std::fesetround(before_); }
  Rounding(const Rounding&) = delete;

 private:
  int before_;
};

__attribute__((noinline)) double total(const std::vector<double>& x, int mode) {
  const Rounding rounding(mode);
  volatile double sum = 0;
  for (const double value : x) sum = sum + value;
  return sum;
}
}  // namespace

extern "C" int sum(const DLTensor* input, const int64_t* dim, int64_t dim_len, bool, DLTensor* out, cgins_stream) {
  CGINS_CHECK(input->ndim > 0 && dim_len == 1 && (dim[0] == -1 || dim[0] == input->ndim - 1), "the last axis only");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t width = cgins::size(input, -1);
    std::vector<double> x(width);
    for (int64_t row = 0; row < cgins::numel(out); ++row) {
      for (int64_t i = 0; i < width; ++i) x[i] = elements::wide(elements::at<T>(input, row * width + i));
      const double low = total(x, FE_DOWNWARD), high = total(x, FE_UPWARD);
      elements::at<T>(out, row) = elements::rounded<T>(std::isfinite(low) ? low + (high - low) / 2 : high);
    }
    return 0;
  });
}
