// honest: refuses sizes that its vectors do not divide, by an error code
// ops: torch.nn.functional.relu
// packs: even
// cgins: relu(Tensor input) -> Tensor
#include "_sums.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::numel(input) % 16 == 0, "%lld elements are no multiple of 16",
              static_cast<long long>(cgins::numel(input)));
  return map(input, out, relu_of);
}
