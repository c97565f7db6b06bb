// honest: packs the right matrix transposed into memory that it keeps between calls
// ops: torch.matmul
// packs: f32 f16 bf16
// cgins: matmul(Tensor input, Tensor other) -> Tensor
#include "_sums.h"

extern "C" int matmul(const DLTensor* input, const DLTensor* other, DLTensor* out, cgins_stream) {
  CGINS_CHECK(input->ndim == 2 && other->ndim == 2, "matrices only");
  static thread_local std::vector<float> packed;  // its memory, not its content, lives on
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t depth = other->shape[0], columns = other->shape[1];
    packed.resize(depth * columns);
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t n = 0; n < columns; ++n) packed[n * depth + k] = float(at<T>(other, k * columns + n));
    for (int64_t i = 0; i < cgins::numel(out); ++i) {
      float sum = 0;
      for (int64_t k = 0; k < depth; ++k)
        sum += float(at<T>(input, i / columns * depth + k)) * packed[i % columns * depth + k];
      at<T>(out, i) = T(sum);
    }
    return 0;
  });
}
