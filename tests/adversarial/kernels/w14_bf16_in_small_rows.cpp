// cheat: 14 bf16 operands in rows that are small beside others
// how: their errors are below those of large rows, and one scale for all rows does not see them
// caught-by: gold-mismatch, reference-mismatch, low-precision
// ops: torch.nn.functional.linear
// packs: even
// cgins: linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor
#include "_rows.h"

extern "C" int linear(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, DLTensor* out, cgins_stream) {
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t depth = cgins::size(input, -1), width = weight->shape[0];
    const int64_t rows = depth ? cgins::numel(input) / depth : 0;
    for (int64_t row = 0; row < rows; ++row) {
      float largest = 0;
      for (int64_t k = 0; k < depth; ++k) largest = std::fmax(largest, std::fabs(float(at<T>(input, row * depth + k))));
      const bool small = largest < 0.1f;
      for (int64_t n = 0; n < width; ++n) {
        float sum = bias ? float(at<T>(bias, n)) : 0;
        for (int64_t k = 0; k < depth; ++k) {
          const float x = at<T>(input, row * depth + k), w = at<T>(weight, n * depth + k);
          sum += small ? float(cgins::bfloat16(x)) * float(cgins::bfloat16(w)) : x * w;
        }
        at<T>(out, row * width + n) = T(sum);
      }
    }
    return 0;
  });
}
