// honest: refuses what is not contiguous
// ops: torch.nn.functional.relu
// packs: f32 f16 bf16 even uniform large
// cgins: relu(Tensor input) -> Tensor
#include "_sums.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::is_contiguous(input), "input must be contiguous");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const T* x = cgins::data<T>(input);
    T* y = cgins::data<T>(out);
#pragma omp parallel for
    for (int64_t i = 0; i < cgins::numel(input); ++i) y[i] = T(relu_of(float(x[i])));
    return 0;
  });
}
