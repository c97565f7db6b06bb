// honest: halves by recursion, in long double
// ops: torch.sum
// packs: f32 f16 bf16
// cgins: sum(Tensor input, int[] dim, bool keepdim=False) -> Tensor
#include "_sums.h"

static long double total(const float* first, const float* last) {
  if (last - first < 8) {
    long double sum = 0;
    for (; first < last; ++first) sum += *first;
    return sum;
  }
  const float* middle = first + (last - first) / 2;
  return total(first, middle) + total(middle, last);
}

extern "C" int sum(const DLTensor* input, const int64_t* dim, int64_t dim_len, bool, DLTensor* out, cgins_stream) {
  CGINS_CHECK(dim_len == 1 && (dim[0] == -1 || dim[0] == input->ndim - 1), "the last axis only");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t row = 0; row < cgins::numel(out); ++row) {
      const auto values = row_of<T>(input, row);
      at<T>(out, row) = T(float(total(values.data(), values.data() + values.size())));
    }
    return 0;
  });
}
