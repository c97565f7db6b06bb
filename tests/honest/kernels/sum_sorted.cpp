// honest: numbers of a row by their size, the smallest first
// ops: torch.sum
// packs: f32 f16 bf16
// cgins: sum(Tensor input, int[] dim, bool keepdim=False) -> Tensor
#include <algorithm>

#include "_sums.h"

extern "C" int sum(const DLTensor* input, const int64_t* dim, int64_t dim_len, bool, DLTensor* out, cgins_stream) {
  return sum_rows(input, dim, dim_len, out, [](std::vector<float> x) {
    std::stable_sort(x.begin(), x.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); });
    float total = 0;
    for (const float value : x) total += value;
    return total;
  });
}
