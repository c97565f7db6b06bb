// honest: blocks of 64, each in a register, then their sums
// ops: torch.sum
// packs: f32 f16 bf16
// cgins: sum(Tensor input, int[] dim, bool keepdim=False) -> Tensor
#include "_sums.h"

extern "C" int sum(const DLTensor* input, const int64_t* dim, int64_t dim_len, bool, DLTensor* out, cgins_stream) {
  return sum_rows(input, dim, dim_len, out, [](const std::vector<float>& row) {
    float total = 0;
    for (size_t first = 0; first < row.size(); first += 64) {
      float block = 0;
      for (size_t i = first; i < row.size() && i < first + 64; ++i) block += row[i];
      total += block;
    }
    return total;
  });
}
