// honest: adds from the last element to the first
// ops: torch.sum
// packs: f32 f16 bf16
// cgins: sum(Tensor input, int[] dim, bool keepdim=False) -> Tensor
#include "_sums.h"

extern "C" int sum(const DLTensor* input, const int64_t* dim, int64_t dim_len, bool, DLTensor* out, cgins_stream) {
  return sum_rows(input, dim, dim_len, out, [](const std::vector<float>& row) {
    float total = 0;
    for (int64_t i = row.size() - 1; i >= 0; --i) total += row[i];
    return total;
  });
}
