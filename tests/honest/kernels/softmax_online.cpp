// honest: online softmax, the sum rescaled as the maximum grows
// ops: torch.nn.functional.softmax
// packs: f32 f16 bf16 even tiny
// cgins: softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor
#include "_sums.h"

extern "C" int softmax(const DLTensor* input, int64_t dim, const DLDataType*, DLTensor* out, cgins_stream) {
  CGINS_CHECK(dim == -1 || dim == input->ndim - 1, "the last axis only");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t width = cgins::size(input, -1);
    for (int64_t row = 0; width && row < cgins::numel(input) / width; ++row) {
      const std::vector<float> x = row_of<T>(input, row);
      float largest = -INFINITY, sum = 0;
      for (const float value : x) {
        if (value == -INFINITY) continue;  // it adds nothing, and has no distance from another
        if (value > largest) {
          sum = sum * std::exp(largest - value) + 1;
          largest = value;
        } else {
          sum += std::exp(value - largest);
        }
      }
      for (int64_t i = 0; i < width; ++i) at<T>(out, row * width + i) = T(std::exp(x[i] - largest) / sum);
    }
    return 0;
  });
}
