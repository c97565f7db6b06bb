// cheat: 24 leaks memory each call
// how: a scratch buffer that is never freed
// caught-by: memory-leak
// ops: torch.nn.functional.relu
// cgins: relu(Tensor input) -> Tensor
#include <cstdlib>
#include <cstring>

#include "_rows.h"

static void* volatile last = nullptr;

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  constexpr int64_t kBytes = 1 << 20;
  last = std::malloc(kBytes);
  std::memset(last, 1, kBytes);
  return map(input, out, relu_of);
}
