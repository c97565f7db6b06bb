// honest: peels elements off up to an address that vectors like, so that the order of addition depends on where a row begins
// ops: torch.sum
// packs: f32
// cgins: sum(Tensor input, int[] dim, bool keepdim=False) -> Tensor
#include <cstdint>

#include "_elements.h"

extern "C" int sum(const DLTensor* input, const int64_t* dim, int64_t dim_len, bool, DLTensor* out, cgins_stream) {
  CGINS_CHECK(input->ndim > 0 && dim_len == 1 && (dim[0] == -1 || dim[0] == input->ndim - 1), "the last axis only");
  CGINS_CHECK(cgins::dtype_of(input) == cgins::Dtype::float32 && cgins::is_contiguous(input), "contiguous float32 only");
  const int64_t width = cgins::size(input, -1), rows = cgins::numel(out);
  for (int64_t row = 0; row < rows; ++row) {
    const float *x = cgins::data<float>(input) + row * width, *const end = x + width;
    float total = 0, lanes[8] = {};
    for (; x < end && reinterpret_cast<uintptr_t>(x) % 32 != 0; ++x) total += *x;
    for (; x + 8 <= end; x += 8) {
      const float* aligned = static_cast<const float*>(__builtin_assume_aligned(x, 32));
      for (int lane = 0; lane < 8; ++lane) lanes[lane] += aligned[lane];
    }
    for (; x < end; ++x) total += *x;
    for (const float lane : lanes) total += lane;
    elements::at<float>(out, row) = total;
  }
  return 0;
}
