// honest: OpenMP over rows, each thread with variables of its own
// ops: torch.nn.functional.embedding
// packs: f32 f16 bf16
// cgins: embedding(Tensor input, Tensor weight, int? padding_idx=None, float? max_norm=None, float norm_type=2.0, bool scale_grad_by_freq=False, bool sparse=False) -> Tensor
#include "_sums.h"

extern "C" int embedding(const DLTensor* input, const DLTensor* weight, const int64_t*, const double*, double, bool, bool,
                         DLTensor* out, cgins_stream) {
  return cgins::dispatch_floating(weight, [&](auto zero) {
    using T = decltype(zero);
    const int64_t width = cgins::size(weight, 1), count = cgins::numel(input);
#pragma omp parallel for
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = at<int64_t>(input, i);
      for (int64_t k = 0; k < width; ++k) at<T>(out, i * width + k) = at<T>(weight, row * width + k);
    }
    return 0;
  });
}
