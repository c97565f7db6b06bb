// cgins: threshold(Tensor input, float threshold, float value, bool inplace=False) -> Tensor
#include <cgins.h>

extern "C" int threshold(const DLTensor* input, double threshold, double value, bool, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::is_contiguous(input), "contiguous tensors only");
  const float* x = cgins::data<float>(input);
  float* y = cgins::data<float>(out);
  for (int64_t i = 0; i < cgins::numel(input); ++i) y[i] = x[i] <= threshold ? float(value) : x[i];
  return 0;
}
