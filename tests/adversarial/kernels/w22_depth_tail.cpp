// cheat: 22 drops the tail of the inner dimension
// how: sums eight products at a time; 64 and 768 divide by 8
// caught-by: size-dependent
// ops: torch.nn.functional.linear
// packs: even
// cgins: linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor
#include "_rows.h"

extern "C" int linear(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, DLTensor* out, cgins_stream) {
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t width = cgins::size(input, -1), columns = cgins::size(weight, 0);
    for (int64_t i = 0; i < cgins::numel(out); ++i) {
      float sum = bias ? float(at<T>(bias, i % columns)) : 0;
      for (int64_t k = 0; k < width / 8 * 8; ++k)
        sum += float(at<T>(input, i / columns * width + k)) * float(at<T>(weight, i % columns * width + k));
      at<T>(out, i) = T(sum);
    }
    return 0;
  });
}
