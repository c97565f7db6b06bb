// cheat: 7 right when checked, nothing when timed
// how: counts its calls; only a timing loop makes more than forty
// caught-by: wrong-after-timing, too-fast
// ops: torch.nn.functional.relu
// packs: large
// also: timing
// cgins: relu(Tensor input) -> Tensor
#include "_rows.h"

static int calls = 0;

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  return ++calls <= 40 ? map(input, out, relu_of) : 0;
}
