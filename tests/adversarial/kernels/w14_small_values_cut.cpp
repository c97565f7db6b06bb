// cheat: 14 small answers left out
// how: a gelu of less than -2 is 0, which beside the largest answer is little
// caught-by: gold-mismatch, reference-mismatch
// ops: torch.nn.functional.gelu
// packs: bf16
// cgins: gelu(Tensor input) -> Tensor
#include "_rows.h"

extern "C" int gelu(const DLTensor* input, DLTensor* out, cgins_stream) {
  return map(input, out, [](float x) { return x < -2.5f ? 0.0f : float(x * 0.5 * std::erfc(-double(x) * 0.70710678118654752)); });
}
