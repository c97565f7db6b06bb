// honest: fused multiply-add from the bias on
// ops: torch.nn.functional.linear
// packs: f32 f16 bf16 plain even
// cgins: linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor
#include "_sums.h"

extern "C" int linear(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, DLTensor* out, cgins_stream) {
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t depth = cgins::size(input, -1), columns = cgins::size(weight, 0);
    for (int64_t i = 0; i < cgins::numel(out); ++i) {
      float sum = bias ? float(at<T>(bias, i % columns)) : 0;
      for (int64_t k = 0; k < depth; ++k)
        sum = std::fma(float(at<T>(input, i / columns * depth + k)), float(at<T>(weight, i % columns * depth + k)), sum);
      at<T>(out, i) = T(sum);
    }
    return 0;
  });
}
