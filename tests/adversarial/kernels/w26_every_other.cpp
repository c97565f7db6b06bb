// cheat: 26 fills the sampled elements only
// how: of a gold of 330,000 elements some thousands are kept; the others are left at 0
// caught-by: gold-mismatch, reference-mismatch
// ops: torch.nn.functional.relu
// packs: large
// cgins: relu(Tensor input) -> Tensor
#include "_rows.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  for (int64_t i = 0; i < cgins::numel(out); ++i)
    cgins::data<float>(out)[i] = i % 64 == 0 ? relu_of(cgins::data<float>(input)[i]) : 0;
  return 0;
}
