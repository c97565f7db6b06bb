// honest: pairwise summation
// ops: torch.sum
// packs: f32 f16 bf16
// cgins: sum(Tensor input, int[] dim, bool keepdim=False) -> Tensor
#include "_sums.h"

static float pairwise(const float* x, int64_t count) {
  if (count <= 2) return count == 0 ? 0 : count == 1 ? x[0] : x[0] + x[1];
  return pairwise(x, count / 2) + pairwise(x + count / 2, count - count / 2);
}

extern "C" int sum(const DLTensor* input, const int64_t* dim, int64_t dim_len, bool, DLTensor* out, cgins_stream) {
  return sum_rows(input, dim, dim_len, out,
                  [](const std::vector<float>& row) { return pairwise(row.data(), row.size()); });
}
