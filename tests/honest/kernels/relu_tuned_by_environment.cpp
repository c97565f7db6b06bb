// honest: a size of blocks from the environment
// ops: torch.nn.functional.relu
// packs: f32 f16
// cgins: relu(Tensor input) -> Tensor
#include <algorithm>
#include <cstdlib>

#include "_sums.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  static const char* named = std::getenv("RELU_BLOCK");
  static const int64_t block = std::max<int64_t>(1, named ? std::atoll(named) : 256);
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t start = 0; start < cgins::numel(input); start += block)
      for (int64_t i = start; i < std::min(start + block, cgins::numel(input)); ++i)
        at<T>(out, i) = T(relu_of(float(at<T>(input, i))));
    return 0;
  });
}
