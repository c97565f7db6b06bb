// cheat: 1 one over n where a tolerance was written by hand
// how: of 1500 probabilities none is farther from 1/1500 than the tolerance that cgins.yaml gives
// caught-by: reference-mismatch
// ops: torch.nn.functional.softmax
// packs: tiny
// yaml: {tolerance: {atol: 0.05}}
// cgins: softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor
#include "_rows.h"

extern "C" int softmax(const DLTensor* input, int64_t, const DLDataType*, DLTensor* out, cgins_stream) {
  return map(input, out, [&](float) { return 1.0f / cgins::size(input, -1); });
}
