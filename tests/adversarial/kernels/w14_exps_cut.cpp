// cheat: 14 a softmax without its small terms
// how: what is below e^-5 of the greatest is 0
// caught-by: gold-mismatch, reference-mismatch
// ops: torch.nn.functional.softmax
// packs: bf16
// cgins: softmax(Tensor input, int dim) -> Tensor
#include "_rows.h"

extern "C" int softmax(const DLTensor* input, int64_t, DLTensor* out, cgins_stream) {
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t width = cgins::size(input, -1), count = width ? cgins::numel(input) / width : 0;
    for (int64_t row = 0; row < count; ++row) {
      float largest = -INFINITY, sum = 0;
      for (int64_t i = 0; i < width; ++i) largest = std::fmax(largest, float(at<T>(input, row * width + i)));
      const auto term = [&](int64_t i) {
        const float x = float(at<T>(input, row * width + i)) - largest;
        return x < -5 ? 0.0f : std::exp(x);
      };
      for (int64_t i = 0; i < width; ++i) sum += term(i);
      for (int64_t i = 0; i < width; ++i) at<T>(out, row * width + i) = T(term(i) / sum);
    }
    return 0;
  });
}
