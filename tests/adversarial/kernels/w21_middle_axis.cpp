// cheat: 21 knows the first axis and the last
// how: every other dim is taken for the last; a matrix has no other
// caught-by: argument-ignored
// ops: torch.nn.functional.softmax
// cgins: softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor
#include "_rows.h"

extern "C" int softmax(const DLTensor* input, int64_t dim, const DLDataType* dtype, DLTensor* out, cgins_stream) {
  CGINS_CHECK(!dtype, "no dtype");
  if (input->ndim < 2 || (dim != 0 && dim != -input->ndim)) return softmax_rows(input, out);
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t length = input->shape[0], columns = length ? cgins::numel(input) / length : 0;
    for (int64_t column = 0; column < columns; ++column) {
      float largest = -INFINITY, sum = 0;
      for (int64_t i = 0; i < length; ++i) largest = std::fmax(largest, float(at<T>(input, i * columns + column)));
      for (int64_t i = 0; i < length; ++i) sum += std::exp(float(at<T>(input, i * columns + column)) - largest);
      for (int64_t i = 0; i < length; ++i)
        at<T>(out, i * columns + column) = T(std::exp(float(at<T>(input, i * columns + column)) - largest) / sum);
    }
    return 0;
  });
}
