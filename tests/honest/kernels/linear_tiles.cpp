// honest: tiles on the stack, several accumulators, a tail of its own
// ops: torch.nn.functional.linear
// packs: f32
// also: always
// cgins: linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor
#include "_sums.h"

extern "C" int linear(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, DLTensor* out, cgins_stream) {
  CGINS_CHECK(input->dtype.bits == 32, "float32 only");
  const int64_t depth = cgins::size(weight, 1), columns = cgins::size(weight, 0);
  for (int64_t i = 0; columns && i < cgins::numel(out); ++i) {
    const int64_t row = i / columns, column = i % columns;
    float lanes[4] = {}, sum = bias ? at<float>(bias, column) : 0;
    int64_t k = 0;
    for (; k + 4 <= depth; k += 4)
      for (int lane = 0; lane < 4; ++lane)
        lanes[lane] = std::fma(at<float>(input, row * depth + k + lane), at<float>(weight, column * depth + k + lane), lanes[lane]);
    for (; k < depth; ++k) sum += at<float>(input, row * depth + k) * at<float>(weight, column * depth + k);
    at<float>(out, i) = sum + ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3]));
  }
  return 0;
}
