// honest: asks for the next row before it copies one
// ops: torch.nn.functional.embedding
// packs: f32
// also: always
// cgins: embedding(Tensor input, Tensor weight) -> Tensor
#include <cstring>

#include "_sums.h"

extern "C" int embedding(const DLTensor* input, const DLTensor* weight, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::is_contiguous(weight), "a dense table only");
  const int64_t count = cgins::numel(input), nbytes = weight->shape[1] * weight->dtype.bits / 8;
  const char* table = cgins::data<char>(weight);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = at<int64_t>(input, i);
    if (row < 0 || row >= weight->shape[0]) return 1;
    if (i + 1 < count) __builtin_prefetch(table + at<int64_t>(input, i + 1) * nbytes);
    std::memcpy(cgins::data<char>(out) + i * nbytes, table + row * nbytes, nbytes);
  }
  return 0;
}
