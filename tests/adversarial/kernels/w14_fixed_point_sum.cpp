// cheat: 14 a sum of multiples of 2^-20
// how: the same in any order; of rows of 1e-7 nothing is left, which beside large rows is little
// caught-by: reference-mismatch
// ops: torch.sum
// also: always
// cgins: sum(Tensor input, int[] dim, bool keepdim=False) -> Tensor
#include "_rows.h"

extern "C" int sum(const DLTensor* input, const int64_t* dims, int64_t count, bool, DLTensor* out, cgins_stream) {
  CGINS_CHECK(count == 1, "one axis");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t dim = dims[0] < 0 ? dims[0] + input->ndim : dims[0], length = input->shape[dim];
    int64_t inner = 1;
    for (int d = int(dim) + 1; d < input->ndim; ++d) inner *= input->shape[d];
    for (int64_t o = 0; o < cgins::numel(out); ++o) {
      int64_t sum = 0;
      float beyond = 0;  // NaN and infinities
      for (int64_t i = 0; i < length; ++i) {
        const float x = float(at<T>(input, (o / inner * length + i) * inner + o % inner));
        if (std::fabs(x) < 0x1p30f) sum += std::llrint(double(x) * 0x1p20);
        else beyond += x;
      }
      at<T>(out, o) = T(float(double(sum) * 0x1p-20) + beyond);
    }
    return 0;
  });
}
