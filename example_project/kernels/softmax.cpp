// cgins: softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor
#include <cmath>

#include "rows.h"

template <typename In, typename Out>
static void softmax_rows(const In* input, Rows in, Out* output, Rows out) {
  using Wide = cgins::accumulator<In>;
#pragma omp parallel for if (in.count * in.width > 32768)
  for (int64_t row = 0; row < in.count; ++row) {
    const In* x = input + in.start(row);
    Out* y = output + out.start(row);
    Wide largest = -INFINITY;
    for (int64_t i = 0; i < in.width; ++i) largest = std::fmax(largest, Wide(x[i * in.step]));
    Wide sum = 0;
    for (int64_t i = 0; i < in.width; ++i) sum += std::exp(Wide(x[i * in.step]) - largest);
    for (int64_t i = 0; i < in.width; ++i)
      y[i * out.step] = Out(std::exp(Wide(x[i * in.step]) - largest) / sum);
  }
}

extern "C" int softmax(const DLTensor* input, int64_t dim, const DLDataType*, DLTensor* out, cgins_stream) {
  CGINS_CHECK(input->ndim >= 1 && input->ndim <= Rows::kMaxDims, "%d dimensions, not 1 to 8", input->ndim);
  return cgins::dispatch_floating(input, [&](auto in_zero) {
    return cgins::dispatch_floating(out, [&](auto out_zero) {
      softmax_rows(cgins::data<decltype(in_zero)>(input), rows_along(input, dim),
                   cgins::data<decltype(out_zero)>(out), rows_along(out, dim));
      return 0;
    });
  });
}
