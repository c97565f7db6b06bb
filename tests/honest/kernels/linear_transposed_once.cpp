// honest: a transposed copy of the weight, in memory that is kept and filled anew in each call
// ops: torch.nn.functional.linear
// packs: f32 f16 bf16 even
// cgins: linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor
#include "_sums.h"

static std::vector<float> turned;

extern "C" int linear(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, DLTensor* out, cgins_stream) {
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t depth = cgins::size(input, -1), columns = weight->shape[0];
    turned.resize(depth * columns);
    for (int64_t n = 0; n < columns; ++n)
      for (int64_t k = 0; k < depth; ++k) turned[k * columns + n] = float(at<T>(weight, n * depth + k));
    std::vector<float> sums(columns);
    for (int64_t row = 0; depth && row < cgins::numel(input) / depth; ++row) {
      for (int64_t n = 0; n < columns; ++n) sums[n] = bias ? float(at<T>(bias, n)) : 0;
      for (int64_t k = 0; k < depth; ++k) {
        const float x = float(at<T>(input, row * depth + k));
        for (int64_t n = 0; n < columns; ++n) sums[n] += x * turned[k * columns + n];
      }
      for (int64_t n = 0; n < columns; ++n) at<T>(out, row * columns + n) = T(sums[n]);
    }
    return 0;
  });
}
