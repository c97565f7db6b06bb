// honest: hardened: hidden symbols, checked copies, guarded stacks, no exceptions, optimised at link time
// ops: torch.nn.functional.relu
// packs: f32 bf16
// yaml: {flags: [-fvisibility=hidden, -fno-exceptions, -fno-rtti, -fstack-protector-all, -D_FORTIFY_SOURCE=2, -D_GLIBCXX_ASSERTIONS, -flto, -fno-plt]}
// cgins: relu(Tensor input, bool inplace=False) -> Tensor
#include "_elements.h"

extern "C" int relu(const DLTensor* input, bool inplace, DLTensor* out, cgins_stream) {
  CGINS_CHECK(!inplace, "out of place only");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < cgins::numel(input); ++i) {
      const double x = elements::wide(elements::at<T>(input, i));
      elements::at<T>(out, i) = elements::rounded<T>(x < 0 ? 0 : x);
    }
    return 0;
  });
}
