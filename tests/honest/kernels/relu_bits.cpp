// honest: the sign is read from the bits, through a table of functions that the first call fills
// ops: torch.nn.functional.relu
// packs: f32
// cgins: relu(Tensor input) -> Tensor
#include "_sums.h"

using Map = float (*)(float);
static Map table[2];

static float keep(float x) { return x; }
static float drop(float x) { return x != x ? x : 0.0f; }

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  static const bool filled = [] { return table[0] = keep, table[1] = drop, true; }();
  CGINS_CHECK(filled && input->dtype.bits == 32, "float32 only");
  for (int64_t i = 0; i < cgins::numel(input); ++i) {
    const float x = cgins::data<float>(input)[cgins::offset_of(input, i)];
    uint32_t bits;
    __builtin_memcpy(&bits, &x, 4);
    at<float>(out, i) = table[bits >> 31](x);
  }
  return 0;
}
