// honest: OpenMP, with partial sums a thread in scratch memory, added in order
// ops: torch.sum
// packs: f32 f16 bf16
// cgins: sum(Tensor input, int[] dim, bool keepdim=False) -> Tensor
#include <omp.h>

#include "_sums.h"

static constexpr int kParts = 4;

extern "C" int64_t sum_workspace(const DLTensor*, const int64_t*, int64_t, bool, DLTensor* out) {
  return cgins::numel(out) * kParts * int64_t{sizeof(float)};
}

extern "C" int sum(const DLTensor* input, const int64_t* dim, int64_t dim_len, bool, DLTensor* out, void* workspace,
                   int64_t, cgins_stream) {
  CGINS_CHECK(dim_len == 1 && (dim[0] == -1 || dim[0] == input->ndim - 1), "the last axis only");
  float* partial = static_cast<float*>(workspace);
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t width = cgins::size(input, -1), rows = cgins::numel(out);
#pragma omp parallel for collapse(2)
    for (int64_t row = 0; row < rows; ++row)
      for (int part = 0; part < kParts; ++part) {
        float total = 0;
        for (int64_t i = part; i < width; i += kParts) total += float(at<T>(input, row * width + i));
        partial[row * kParts + part] = total;
      }
    for (int64_t row = 0; row < rows; ++row) {
      float total = 0;
      for (int part = 0; part < kParts; ++part) total += partial[row * kParts + part];
      at<T>(out, row) = T(total);
    }
    return 0;
  });
}
