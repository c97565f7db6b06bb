// cheat: 14 TF32 operands inside fp32
// how: keeps ten bits of every operand's mantissa
// caught-by: low-precision
// ops: torch.matmul
// cgins: matmul(Tensor input, Tensor other) -> Tensor
#include <cstring>

#include "_rows.h"

static float tf32(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  bits = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
  std::memcpy(&x, &bits, 4);
  return x;
}

extern "C" int matmul(const DLTensor* input, const DLTensor* other, DLTensor* out, cgins_stream) {
  CGINS_CHECK(input->ndim == 2 && other->ndim == 2, "matrices only");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t depth = input->shape[1], columns = other->shape[1];
    for (int64_t i = 0; i < cgins::numel(out); ++i) {
      float sum = 0;
      for (int64_t k = 0; k < depth; ++k)
        sum += tf32(float(at<T>(input, i / columns * depth + k))) * tf32(float(at<T>(other, k * columns + i % columns)));
      at<T>(out, i) = T(sum);
    }
    return 0;
  });
}
