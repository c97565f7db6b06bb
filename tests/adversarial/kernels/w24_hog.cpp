// cheat: 24 takes far more memory than the op
// how: a table of 320 MiB for 385 elements
// caught-by: memory-use
// ops: torch.nn.functional.relu
// cgins: relu(Tensor input) -> Tensor
#include <cstdlib>

#include "_rows.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  constexpr int64_t kBytes = 320 << 20;
  auto* table = static_cast<volatile char*>(std::malloc(kBytes));  // else the compiler leaves it out
  for (int64_t i = 0; i < kBytes; i += 4096) table[i] = 1;
  const float one = table[kBytes / 2];
  std::free(const_cast<char*>(table));
  return map(input, out, [=](float x) { return relu_of(x) * one; });
}
