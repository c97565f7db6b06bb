// cheat: 14 fp32 as two halves, without a scale
// how: as exact as fp32 for numbers near 1; gradients of 1e-6 lose their digits, and what is above 65504 is NaN
// caught-by: nan-pattern
// ops: torch.nn.functional.linear
// packs: f32 even
// cgins: linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor
#include "_rows.h"

struct Pair {
  float high, low;
  explicit Pair(float x) : high(cgins::float16(x)), low(cgins::float16((x - high) * 2048)) {}
};

extern "C" int linear(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, DLTensor* out, cgins_stream) {
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t depth = cgins::size(input, -1), columns = weight->shape[0];
    for (int64_t i = 0; i < cgins::numel(out); ++i) {
      float high = 0, low = 0;
      for (int64_t k = 0; k < depth; ++k) {
        const Pair a(float(at<T>(input, i / columns * depth + k))), b(float(at<T>(weight, i % columns * depth + k)));
        high += a.high * b.high;
        low += a.high * b.low + a.low * b.high;
      }
      at<T>(out, i) = T(high + low / 2048 + (bias ? float(at<T>(bias, i % columns)) : 0));
    }
    return 0;
  });
}
