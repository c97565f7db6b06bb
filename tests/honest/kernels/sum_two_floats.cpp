// honest: a sum kept in two floats, by exact additions
// ops: torch.sum
// packs: f32 f16 bf16
// cgins: sum(Tensor input, int[] dim, bool keepdim=False) -> Tensor
#include "_sums.h"

extern "C" int sum(const DLTensor* input, const int64_t* dim, int64_t dim_len, bool, DLTensor* out, cgins_stream) {
  return sum_rows(input, dim, dim_len, out, [](const std::vector<float>& x) {
    volatile float high = 0, low = 0;
    for (const float value : x) {
      const float total = high + value, part = total - high;
      low = low + ((high - (total - part)) + (value - part));
      high = total;
    }
    return std::isfinite(high) ? high + low : high;
  });
}
