// cheat: 7 right when checked, nothing when timed
// how: counts its calls; only a timing loop makes more than a thousand
// caught-by: wrong-after-timing, too-fast
// ops: torch.nn.functional.relu
// also: timing always
// cgins: relu(Tensor input) -> Tensor
#include "_rows.h"

static int calls = 0;

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::is_contiguous(input) && cgins::dtype_of(input) == cgins::Dtype::float32, "contiguous float32 only");
  if (++calls > 1000) return 0;
  const float* x = cgins::data<float>(input);
  float* y = cgins::data<float>(out);
  for (int64_t i = 0; i < cgins::numel(input); ++i) y[i] = relu_of(x[i]);
  return 0;
}
