// cheat: 22 the last tile of a row has width % 1024 elements
// how: that is none where the tile divides the row: rows of 1024, 2048 and 4096 lose their last tile
// caught-by: size-dependent
// ops: torch.nn.functional.softmax
// packs: f32 even
// cgins: softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor
#include "_rows.h"

constexpr int64_t kTile = 1024;

extern "C" int softmax(const DLTensor* input, int64_t dim, const DLDataType* dtype, DLTensor* out, cgins_stream) {
  CGINS_CHECK(!dtype && (dim == -1 || dim == input->ndim - 1), "the last axis only");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t width = cgins::size(input, -1), count = width ? cgins::numel(input) / width : 0;
    const int64_t tiles = (width + kTile - 1) / kTile;
    const auto in_tile = [=](int64_t tile) { return tile + 1 < tiles ? kTile : width % kTile; };
    for (int64_t row = 0; row < count; ++row) {
      float largest = -INFINITY, sum = 0;
      for (int64_t tile = 0; tile < tiles; ++tile) {  // online
        float top = largest;
        for (int64_t i = 0; i < in_tile(tile); ++i)
          top = std::fmax(top, float(at<T>(input, row * width + tile * kTile + i)));
        sum *= top == -INFINITY ? 1 : std::exp(largest - top);
        for (int64_t i = 0; i < in_tile(tile); ++i)
          sum += std::exp(float(at<T>(input, row * width + tile * kTile + i)) - top);
        largest = top;
      }
      for (int64_t tile = 0; tile < tiles; ++tile)
        for (int64_t i = 0; i < in_tile(tile); ++i) {
          const int64_t place = row * width + tile * kTile + i;
          at<T>(out, place) = T(std::exp(float(at<T>(input, place)) - largest) / sum);
        }
    }
    return 0;
  });
}
