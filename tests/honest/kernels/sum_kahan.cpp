// honest: Kahan's compensated summation
// ops: torch.sum
// packs: f32 f16 bf16
// cgins: sum(Tensor input, int[] dim, bool keepdim=False) -> Tensor
#include "_sums.h"

extern "C" int sum(const DLTensor* input, const int64_t* dim, int64_t dim_len, bool, DLTensor* out, cgins_stream) {
  return sum_rows(input, dim, dim_len, out, [](const std::vector<float>& row) {
    volatile float total = 0, lost = 0;
    for (const float value : row) {
      const float term = value - lost, next = total + term;
      // An infinite total has nothing left to correct.
      lost = std::isfinite(next) ? (next - total) - term : 0;
      total = next;
    }
    return float(total);
  });
}
