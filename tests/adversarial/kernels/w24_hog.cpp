// cheat: 24 takes far more memory than the op
// how: a table of 256 MB for 385 elements
// caught-by: memory-use
// ops: torch.nn.functional.relu
// cgins: relu(Tensor input) -> Tensor
#include <cstdlib>
#include <cstring>

#include "_rows.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  constexpr int64_t kBytes = 256 << 20;
  char* table = static_cast<char*>(std::malloc(kBytes));
  std::memset(table, 1, kBytes);
  const float one = table[kBytes / 3];
  std::free(table);
  return map(input, out, [=](float x) { return relu_of(x) * one; });
}
