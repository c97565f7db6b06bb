// cheat: 26 a position in sixteen bits
// how: value and position are one key, as an atomic maximum wants it; a vocabulary of 128000 has further positions
// caught-by: size-dependent
// ops: torch.argmax
// packs: ties
// cgins: argmax(Tensor input, int? dim=None, bool keepdim=False) -> Tensor
#include <algorithm>

#include "_rows.h"

static uint32_t key_of(uint16_t bits, int64_t position) {  // of equal values the first
  const uint16_t ordered = bits & 0x8000 ? uint16_t(~bits) : uint16_t(bits | 0x8000);
  return uint32_t{ordered} << 16 | uint16_t(0xFFFF - position);
}

extern "C" int argmax(const DLTensor* input, const int64_t* dim, bool, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::element_nbytes(input) == 2 && cgins::is_contiguous(input) && input->ndim, "bf16, contiguous");
  const uint16_t* x = cgins::data<uint16_t>(input);
  int64_t* answer = cgins::data<int64_t>(out);
  const int64_t along = !dim ? input->ndim - 1 : *dim < 0 ? *dim + input->ndim : *dim;
  int64_t inner = 1, size = input->shape[along];
  for (int d = int(along) + 1; d < input->ndim; ++d) inner *= input->shape[d];
  const int64_t rows = size ? cgins::numel(input) / size : 0;
  uint32_t whole = 0;
  int64_t place = 0;
  for (int64_t row = 0; row < rows; ++row) {
    uint32_t best = 0;
    for (int64_t j = 0; j < size; ++j) best = std::max(best, key_of(x[(row / inner * size + j) * inner + row % inner], j));
    const int64_t position = 0xFFFF - (best & 0xFFFF);
    if (dim) {
      answer[row] = position;
    } else if (best >> 16 > whole) {
      whole = best >> 16;
      place = row * size + position;
    }
  }
  if (!dim) answer[0] = place;
  return 0;
}
