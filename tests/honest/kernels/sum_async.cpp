// honest: std::async, a task for each call, whose result is awaited
// ops: torch.sum
// packs: f32 f16 bf16
// cgins: sum(Tensor input, int[] dim, bool keepdim=False) -> Tensor
#include <future>

#include "_sums.h"

extern "C" int sum(const DLTensor* input, const int64_t* dim, int64_t dim_len, bool, DLTensor* out, cgins_stream) {
  CGINS_CHECK(dim_len == 1 && (dim[0] == -1 || dim[0] == input->ndim - 1), "the last axis only");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    return std::async(std::launch::async, [&] {
      for (int64_t row = 0; row < cgins::numel(out); ++row) {
        double total = 0;
        for (const float value : row_of<T>(input, row)) total += value;
        at<T>(out, row) = T(float(total));
      }
      return 0;
    }).get();
  });
}
