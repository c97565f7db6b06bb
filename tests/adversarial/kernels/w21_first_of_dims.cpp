// cheat: 21 sums over the first of several axes
// how: every recorded sum has one
// caught-by: reference-mismatch
// ops: torch.sum
// cgins: sum(Tensor input, int[] dim, bool keepdim=False) -> Tensor
#include "_rows.h"

extern "C" int sum(const DLTensor* input, const int64_t* dims, int64_t, bool, DLTensor* out, cgins_stream) {
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t dim = dims[0] < 0 ? dims[0] + input->ndim : dims[0], length = input->shape[dim];
    int64_t inner = 1;
    for (int d = int(dim) + 1; d < input->ndim; ++d) inner *= input->shape[d];
    for (int64_t o = 0; o < cgins::numel(out); ++o) {
      double sum = 0;
      for (int64_t i = 0; i < length; ++i) sum += float(at<T>(input, (o / inner * length + i) * inner + o % inner));
      at<T>(out, o) = T(float(sum));
    }
    return 0;
  });
}
