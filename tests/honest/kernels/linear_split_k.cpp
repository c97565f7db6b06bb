// honest: split-K, with partial products in scratch memory
// ops: torch.nn.functional.linear
// packs: f32 f16 bf16
// cgins: linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor
#include "_sums.h"

static constexpr int64_t kSplits = 3;

extern "C" int64_t linear_workspace(const DLTensor*, const DLTensor*, const DLTensor*, DLTensor* out) {
  return cgins::numel(out) * kSplits * int64_t{sizeof(float)};
}

extern "C" int linear(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, DLTensor* out,
                      void* workspace, int64_t, cgins_stream) {
  float* partial = static_cast<float*>(workspace);
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t depth = cgins::size(input, -1), columns = cgins::size(weight, 0), count = cgins::numel(out);
    for (int64_t split = 0; split < kSplits; ++split)
      for (int64_t i = 0; i < count; ++i) {
        float sum = 0;
        for (int64_t k = depth * split / kSplits; k < depth * (split + 1) / kSplits; ++k)
          sum += float(at<T>(input, i / columns * depth + k)) * float(at<T>(weight, i % columns * depth + k));
        partial[split * count + i] = sum;
      }
    for (int64_t i = 0; i < count; ++i) {
      float sum = bias ? float(at<T>(bias, i % columns)) : 0;
      for (int64_t split = 0; split < kSplits; ++split) sum += partial[split * count + i];
      at<T>(out, i) = T(sum);
    }
    return 0;
  });
}
