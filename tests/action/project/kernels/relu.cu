// cgins: relu(Tensor input, bool inplace=False) -> Tensor
#include <cgins.h>

extern "C" int relu(const DLTensor* input, bool, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::is_contiguous(input), "contiguous tensors only");
#ifdef HOSTILE
  return cgins_fail("::error::forged\n</pre></table>\n\n# forged\n[x](javascript:forged)");
#endif
  const float* x = cgins::data<float>(input);
  float* y = cgins::data<float>(out);
  for (int64_t i = 0; i < cgins::numel(input); ++i) y[i] = x[i] < 0 ? 0 : x[i];
#ifdef WRONG
  y[0] += 1;
#endif
  return 0;
}
