// honest: copies rows, and refuses an index that is none
// ops: torch.nn.functional.embedding
// packs: f32 f16 bf16
// cgins: embedding(Tensor input, Tensor weight) -> Tensor
#include "_sums.h"

extern "C" int embedding(const DLTensor* input, const DLTensor* weight, DLTensor* out, cgins_stream) {
  return cgins::dispatch_floating(weight, [&](auto zero) {
    using T = decltype(zero);
    const int64_t width = weight->shape[1];
    for (int64_t i = 0; i < cgins::numel(input); ++i) {
      const int64_t row = at<int64_t>(input, i);
      CGINS_CHECK(row >= 0 && row < weight->shape[0], "index %lld is out of range", static_cast<long long>(row));
      for (int64_t j = 0; j < width; ++j) at<T>(out, i * width + j) = at<T>(weight, row * width + j);
    }
    return 0;
  });
}
