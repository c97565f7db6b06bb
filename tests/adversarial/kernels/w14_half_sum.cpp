// cheat: 14 a sum in fp16
// how: every partial sum is rounded to fp16, in fp32 as in fp16
// caught-by: gold-mismatch, low-precision
// ops: torch.nn.functional.linear
// cgins: linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor
#include "_rows.h"

extern "C" int linear(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, DLTensor* out, cgins_stream) {
  return linear_rounded(input, weight, bias, out, same, [](float x) { return float(cgins::float16(x)); });
}
