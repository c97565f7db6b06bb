// honest: scratch memory of each thread, kept from call to call
// ops: torch.nn.functional.softmax
// packs: f32 f16 bf16
// cgins: softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor
#include "_sums.h"

extern "C" int softmax(const DLTensor* input, int64_t dim, const DLDataType*, DLTensor* out, cgins_stream) {
  CGINS_CHECK(dim == -1 || dim == input->ndim - 1, "the last axis only");
  thread_local std::vector<float> scratch;
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t width = cgins::size(input, -1);
    if (int64_t(scratch.size()) < width) scratch.resize(width);
    for (int64_t row = 0; width && row < cgins::numel(input) / width; ++row) {
      float largest = -INFINITY, sum = 0;
      for (int64_t i = 0; i < width; ++i) {
        scratch[i] = float(at<T>(input, row * width + i));
        largest = scratch[i] > largest || scratch[i] != scratch[i] ? scratch[i] : largest;
      }
      for (int64_t i = 0; i < width; ++i) sum += scratch[i] = std::exp(scratch[i] - largest);
      for (int64_t i = 0; i < width; ++i) at<T>(out, row * width + i) = T(scratch[i] / sum);
    }
    return 0;
  });
}
