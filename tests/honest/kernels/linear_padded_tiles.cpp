// honest: tiles of eight rows in scratch memory, those beyond the batch filled with zeros
// ops: torch.nn.functional.linear
// packs: f32 f16 bf16 even
// yaml: {claims: [batch_invariant]}
// cgins: linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor
#include "_sums.h"

extern "C" int linear(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, DLTensor* out, cgins_stream) {
  constexpr int64_t kTile = 8;
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t depth = cgins::size(input, -1), columns = cgins::size(weight, 0);
    const int64_t rows = columns ? cgins::numel(out) / columns : 0;
    std::vector<float> tile(kTile * depth);
    for (int64_t first = 0; first < rows; first += kTile) {
      for (int64_t i = 0; i < kTile * depth; ++i)
        tile[i] = first + i / std::max<int64_t>(depth, 1) < rows ? float(at<T>(input, first * depth + i)) : 0.0f;
      for (int64_t lane = 0; lane < kTile && first + lane < rows; ++lane)
        for (int64_t column = 0; column < columns; ++column) {
          float sum = bias ? float(at<T>(bias, column)) : 0;
          for (int64_t k = 0; k < depth; ++k) sum += tile[lane * depth + k] * float(at<T>(weight, column * depth + k));
          at<T>(out, (first + lane) * columns + column) = T(sum);
        }
    }
    return 0;
  });
}
