// honest: std::sort, whose branches a processor learns where it sees the same numbers again
// ops: torch.sort
// packs: branching
// also: timing always
// cgins: sort(Tensor input, int dim=-1, bool descending=False, *, bool stable=False) -> (Tensor values, Tensor indices)
#include <cgins.h>

#include <algorithm>
#include <numeric>

extern "C" int sort(const DLTensor* input, int64_t dim, bool descending, bool, DLTensor* values, DLTensor* indices,
                    cgins_stream) {
  CGINS_CHECK(cgins::is_contiguous(input) && cgins::dtype_of(input) == cgins::Dtype::float32, "contiguous float32 only");
  CGINS_CHECK(input->ndim > 0 && (dim == -1 || dim == input->ndim - 1), "only the last dimension");
  const int64_t columns = input->shape[input->ndim - 1];
  for (int64_t start = 0; start < cgins::numel(input); start += columns) {
    const float* x = cgins::data<float>(input) + start;
    int64_t* order = cgins::data<int64_t>(indices) + start;
    std::iota(order, order + columns, 0);
    std::sort(order, order + columns, [&](int64_t a, int64_t b) {
      if (x[a] != x[b]) return descending ? x[a] > x[b] || x[a] != x[a] : x[a] < x[b] || x[b] != x[b];
      return a < b;
    });
    for (int64_t i = 0; i < columns; ++i) cgins::data<float>(values)[start + i] = x[order[i]];
  }
  return 0;
}
