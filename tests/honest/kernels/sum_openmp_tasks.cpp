// honest: OpenMP tasks, two a row, joined before the call returns
// ops: torch.sum
// packs: f32 f16 bf16
// cgins: sum(Tensor input, int[] dim, bool keepdim=False) -> Tensor
#include "_sums.h"

template <class T>
float part(const DLTensor* input, int64_t row, int64_t first, int64_t last) {
  const auto values = row_of<T>(input, row);
  float total = 0;
  for (int64_t i = first; i < last; ++i) total += values[i];
  return total;
}

extern "C" int sum(const DLTensor* input, const int64_t* dim, int64_t dim_len, bool, DLTensor* out, cgins_stream) {
  CGINS_CHECK(dim_len == 1 && (dim[0] == -1 || dim[0] == input->ndim - 1), "the last axis only");
  const int64_t width = cgins::size(input, -1);
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
#pragma omp parallel
#pragma omp single
    for (int64_t row = 0; row < cgins::numel(out); ++row) {
#pragma omp task firstprivate(row)
      {
        float left = 0, right = 0;
#pragma omp task shared(left)
        left = part<T>(input, row, 0, width / 2);
        right = part<T>(input, row, width / 2, width);
#pragma omp taskwait
        at<T>(out, row) = T(left + right);
      }
    }
    return 0;
  });
}
