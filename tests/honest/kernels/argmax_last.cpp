// honest: of equal values the last one
// ops: torch.argmax
// packs: ties
// cgins: argmax(Tensor input, int? dim=None, bool keepdim=False) -> Tensor
#include <cgins.h>

#include <cstdint>
#include <cstring>

static float at(const DLTensor* x, int64_t i) {
  const uint32_t bits = uint32_t(cgins::data<uint16_t>(x)[i]) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

extern "C" int argmax(const DLTensor* input, const int64_t* dim, bool keepdim, DLTensor* out, cgins_stream) {
  int64_t outer = 1, size = 1, inner = 1;
  if (input->dtype.code != kDLBfloat) return 1;
  CGINS_CHECK(cgins::is_contiguous(input), "contiguous input only");
  const int64_t along = dim == nullptr ? 0 : (*dim < 0 ? *dim + input->ndim : *dim);
  for (int d = 0; d < input->ndim; ++d) {
    const int64_t length = input->shape[d];
    (dim == nullptr || d == along ? size : d < along ? outer : inner) *= length;
  }
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      int64_t best = 0;
      for (int64_t j = 1; j < size; ++j)
        if (at(input, (o * size + j) * inner + i) >= at(input, (o * size + best) * inner + i)) best = j;
      cgins::data<int64_t>(out)[o * inner + i] = best;
    }
  return 0;
}
