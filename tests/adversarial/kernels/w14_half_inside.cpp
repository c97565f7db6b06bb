// cheat: 14 fp16 operands inside fp32
// how: rounds both operands of every product to fp16, as a half precision matrix unit would
// caught-by: low-precision
// ops: torch.nn.functional.linear
// cgins: linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor
#include "_rows.h"

extern "C" int linear(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, DLTensor* out, cgins_stream) {
  return linear_rounded(input, weight, bias, out, [](float x) { return float(cgins::float16(x)); }, same);
}
