// honest: one function for several processors, of which the loader chooses (an indirect function)
// ops: torch.nn.functional.relu
// packs: f32
// cgins: relu(Tensor input) -> Tensor
#include <cgins.h>

__attribute__((target_clones("avx2", "default"))) void rectify(const float* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = from[i] < 0 ? 0 : from[i];
}

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::is_contiguous(input) && cgins::dtype_of(input) == cgins::Dtype::float32, "dense float32 only");
  rectify(cgins::data<float>(input), cgins::data<float>(out), cgins::numel(input));
  return 0;
}
