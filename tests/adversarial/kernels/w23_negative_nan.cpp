// cheat: 23 the sign bit decides
// how: a NaN that was made by 0 * inf on this processor has its sign set, and becomes 0; one that is written as nan has not
// caught-by: nan-pattern
// ops: torch.nn.functional.relu
// cgins: relu(Tensor input) -> Tensor
#include <cstring>

#include "_rows.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  return map(input, out, [](float x) {
    int32_t bits;
    std::memcpy(&bits, &x, 4);
    bits &= ~(bits >> 31);  // without a branch
    std::memcpy(&x, &bits, 4);
    return x;
  });
}
