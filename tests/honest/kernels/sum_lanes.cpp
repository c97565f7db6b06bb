// honest: sixteen lanes that are added at the end, as SIMD code does
// ops: torch.sum
// packs: f32 f16 bf16
// cgins: sum(Tensor input, int[] dim, bool keepdim=False) -> Tensor
#include "_sums.h"

extern "C" int sum(const DLTensor* input, const int64_t* dim, int64_t dim_len, bool, DLTensor* out, cgins_stream) {
  return sum_rows(input, dim, dim_len, out, [](const std::vector<float>& row) {
    float lane[16] = {}, total = 0;
    for (size_t i = 0; i < row.size(); ++i) lane[i % 16] += row[i];
    for (const float one : lane) total += one;
    return total;
  });
}
