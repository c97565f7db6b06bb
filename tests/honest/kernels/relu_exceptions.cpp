// honest: leaves its loop by an exception that it catches itself
// ops: torch.nn.functional.relu
// packs: f32
// cgins: relu(Tensor input) -> Tensor
#include <stdexcept>

#include "_sums.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    int64_t i = 0;
    try {
      for (;; ++i) {
        if (i == cgins::numel(input)) throw std::out_of_range("the end");
        at<T>(out, i) = T(relu_of(float(at<T>(input, i))));
      }
    } catch (const std::out_of_range&) {
    }
    return 0;
  });
}
