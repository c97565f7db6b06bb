// cheat: 14 a softmax without its small terms
// how: what is below e^-5 of the greatest is 0
// caught-by: gold-mismatch, reference-mismatch
// ops: torch.nn.functional.softmax
// packs: bf16
// cgins: softmax(Tensor input, int dim) -> Tensor
#include "_rows.h"

extern "C" int softmax(const DLTensor* input, int64_t, DLTensor* out, cgins_stream) {
  return softmax_rows(input, out, [](float x) { return x < -5 ? 0.0f : std::exp(x); });
}
