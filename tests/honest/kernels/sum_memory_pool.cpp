// honest: scratch from a pool that grows and is never given back
// ops: torch.sum
// packs: f32 f16 bf16
// cgins: sum(Tensor input, int[] dim, bool keepdim=False) -> Tensor
#include <memory>

#include "_sums.h"

extern "C" int sum(const DLTensor* input, const int64_t* dim, int64_t dim_len, bool, DLTensor* out, cgins_stream) {
  CGINS_CHECK(dim_len == 1 && (dim[0] == -1 || dim[0] == input->ndim - 1), "the last axis only");
  static std::unique_ptr<float[]> pool;
  static int64_t room = 0;
  const int64_t width = cgins::size(input, -1);
  if (width > room) pool.reset(new float[room = 2 * width]);
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t row = 0; row < cgins::numel(out); ++row) {
      int64_t left = 0;
      for (const float value : row_of<T>(input, row)) pool[left++] = value;
      for (; left > 1; left = (left + 1) / 2)
        for (int64_t i = 0; i < left / 2; ++i) pool[i] += pool[left - 1 - i];
      at<T>(out, row) = T(left ? pool[0] : 0.0f);
    }
    return 0;
  });
}
