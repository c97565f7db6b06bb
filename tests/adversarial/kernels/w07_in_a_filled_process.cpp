// cheat: 7 right only in processes that fill outputs before the first call
// how: of the first output it remembers whether it was full of NaN
// caught-by: wrong-after-timing
// ops: torch.nn.functional.relu
// also: timing
// cgins: relu(Tensor input) -> Tensor
#include "_rows.h"

static int gated = -1;

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::is_contiguous(input) && cgins::dtype_of(input) == cgins::Dtype::float32, "contiguous float32 only");
  const int64_t numel = cgins::numel(input);
  const float* x = cgins::data<float>(input);
  float* y = cgins::data<float>(out);
  if (gated < 0 && numel > 0) {
    gated = 1;
    for (int64_t i = 0; i < numel; ++i) gated &= std::isnan(y[i]);
  }
  for (int64_t i = 0; i < numel; ++i) y[i] = gated ? relu_of(x[i]) : x[i];
  return 0;
}
