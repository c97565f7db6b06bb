// honest: sum and count in one atomic of 16 bytes, by the compiler's library for atomics
// ops: torch.sum
// packs: f32
// yaml: {flags: [-latomic]}
// cgins: sum(Tensor input, int[] dim, bool keepdim=False) -> Tensor
#include <atomic>

#include "_elements.h"

namespace {
struct alignas(16) Pair {
  double sum;
  int64_t count;
};
std::atomic<Pair> state;
}  // namespace

extern "C" int sum(const DLTensor* input, const int64_t* dim, int64_t dim_len, bool, DLTensor* out, cgins_stream) {
  CGINS_CHECK(input->ndim > 0 && dim_len == 1 && (dim[0] == -1 || dim[0] == input->ndim - 1), "the last axis only");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t width = cgins::size(input, -1);
    for (int64_t row = 0; row < cgins::numel(out); ++row) {
      state.store({0, 0});
      for (int64_t i = 0; i < width; ++i) {
        Pair old = state.load(), now;
        do now = {old.sum + elements::wide(elements::at<T>(input, row * width + i)), old.count + 1};
        while (!state.compare_exchange_weak(old, now));
      }
      elements::at<T>(out, row) = elements::rounded<T>(state.load().sum);
    }
    return 0;
  });
}
