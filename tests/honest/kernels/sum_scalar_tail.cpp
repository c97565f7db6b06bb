// honest: blocks of eight rows side by side, and the rows that are left over one by one in another order: bits change with the position
// ops: torch.sum
// packs: f32 f16 bf16
// cgins: sum(Tensor input, int[] dim, bool keepdim=False) -> Tensor
#include "_sums.h"

extern "C" int sum(const DLTensor* input, const int64_t* dim, int64_t dim_len, bool, DLTensor* out, cgins_stream) {
  CGINS_CHECK(dim_len == 1 && (dim[0] == -1 || dim[0] == input->ndim - 1), "the last axis only");
  constexpr int64_t kBlock = 8;
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t width = cgins::size(input, -1), rows = cgins::numel(out);
    for (int64_t row = 0; row < rows; ++row) {
      const bool whole = row / kBlock * kBlock + kBlock <= rows;
      float parts[4] = {0, 0, 0, 0};
      for (int64_t i = 0; i < width; ++i) parts[whole ? i % 4 : 0] += float(at<T>(input, row * width + i));
      at<T>(out, row) = T((parts[0] + parts[1]) + (parts[2] + parts[3]));
    }
    return 0;
  });
}
