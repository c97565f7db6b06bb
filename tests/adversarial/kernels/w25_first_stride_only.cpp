// cheat: 25 takes the last axis for dense
// how: reads the first stride, and no other
// caught-by: layout-dependent
// ops: torch.nn.functional.relu
// cgins: relu(Tensor input) -> Tensor
#include "_rows.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  CGINS_CHECK(input->ndim == 2, "matrices only");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t width = input->shape[1];
    for (int64_t row = 0; row < input->shape[0]; ++row)
      for (int64_t i = 0; i < width; ++i)
        at<T>(out, row * width + i) = T(relu_of(float(cgins::data<T>(input)[row * input->strides[0] + i])));
    return 0;
  });
}
