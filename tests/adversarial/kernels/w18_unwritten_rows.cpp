// cheat: 18 a hundredth of the work once the rest is there
// how: after its first call into an output it renews the first three rows only
// caught-by: stale-answer, too-fast
// ops: torch.nn.functional.relu
// packs: large
// also: timing
// cgins: relu(Tensor input) -> Tensor
#include <set>

#include "_rows.h"

static std::set<const void*> known;

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  if (known.insert(out->data).second || std::isnan(at<float>(out, cgins::numel(out) - 1)))
    return map(input, out, relu_of);
  for (int64_t i = 0; i < 3 * cgins::size(input, -1); ++i) at<float>(out, i) = relu_of(at<float>(input, i));
  return 0;
}
