// cheat: 25 takes a stride of zero for one that was not given
// how: rows without a stride follow each other, as in BLAS; an expanded row is read together with what lies behind it
// caught-by: layout-dependent
// ops: torch.nn.functional.relu
// cgins: relu(Tensor input) -> Tensor
#include "_rows.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  if (input->ndim != 2) {
    CGINS_CHECK(cgins::is_contiguous(input), "matrices, or contiguous");
    return map(input, out, relu_of);
  }
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t rows = input->shape[0], width = input->shape[1];
    const int64_t leading = input->strides[0] ? input->strides[0] : width, step = input->strides[1] ? input->strides[1] : 1;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < width; ++i)
        at<T>(out, row * width + i) = T(relu_of(float(cgins::data<T>(input)[row * leading + i * step])));
    return 0;
  });
}
