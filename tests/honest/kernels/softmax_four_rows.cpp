// honest: rows in blocks of four, the last block filled up with the first row again
// ops: torch.nn.functional.softmax
// packs: f32 f16 bf16 even
// yaml: {claims: [batch_invariant]}
// cgins: softmax(Tensor input, int dim) -> Tensor
#include "_sums.h"

extern "C" int softmax(const DLTensor* input, int64_t dim, DLTensor* out, cgins_stream) {
  CGINS_CHECK(dim == -1 || dim == input->ndim - 1, "the last axis only");
  constexpr int64_t kTile = 4;
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t width = cgins::size(input, -1), rows = width ? cgins::numel(input) / width : 0;
    std::vector<float> tile(kTile * width);
    for (int64_t first = 0; first < rows; first += kTile) {
      for (int64_t lane = 0; lane < kTile; ++lane) {
        const int64_t row = first + lane < rows ? first + lane : 0;
        for (int64_t i = 0; i < width; ++i) tile[lane * width + i] = float(at<T>(input, row * width + i));
      }
      for (int64_t lane = 0; lane < kTile && first + lane < rows; ++lane) {
        float largest = -INFINITY, sum = 0;
        bool nan = false;
        for (int64_t i = 0; i < width; ++i) {
          nan |= std::isnan(tile[lane * width + i]);
          largest = std::fmax(largest, tile[lane * width + i]);
        }
        for (int64_t i = 0; i < width; ++i) sum += std::exp(tile[lane * width + i] - largest);
        if (nan) sum = NAN;
        for (int64_t i = 0; i < width; ++i)
          at<T>(out, (first + lane) * width + i) = T(std::exp(tile[lane * width + i] - largest) / sum);
      }
    }
    return 0;
  });
}
