// honest: prints what it does
// ops: torch.nn.functional.relu
// packs: f32 f16 bf16
// cgins: relu(Tensor input) -> Tensor
#include <cstdio>

#include "_sums.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  std::printf("relu of %lld elements\n", static_cast<long long>(cgins::numel(input)));
  std::fprintf(stderr, "relu: done\n");
  return map(input, out, relu_of);
}
