// What kernels with the flag `base` are at the base revision.
// cgins: relu(Tensor input, bool inplace=False) -> Tensor
#include <cgins.h>

extern "C" int relu(const DLTensor* input, bool, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::is_contiguous(input), "contiguous tensors only");
  const float* x = cgins::data<float>(input);
  float* y = cgins::data<float>(out);
  const int64_t n = cgins::numel(input);
  for (int64_t i = 0; i < n; ++i) {
    y[i] = x[i] < 0 ? 0 : x[i];
  }
  return 0;
}
