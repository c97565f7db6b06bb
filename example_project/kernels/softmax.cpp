// cgins: softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor
#include <cmath>

#include "rows.h"

// As torch has it, the input is converted to the output's element type first.
template <typename In, typename Out>
static void softmax_rows(const In* input, Rows in, Out* output, Rows out) {
  using Wide = cgins::accumulator<Out>;
#pragma omp parallel for if (in.count * in.width > 32768)
  for (int64_t row = 0; row < in.count; ++row) {
    const In* x = input + in.start(row);
    Out* y = output + out.start(row);
    Wide largest = -INFINITY;
    for (int64_t i = 0; i < in.width; ++i) largest = std::fmax(largest, Wide(Out(x[i * in.step])));
    Wide sum = 0;
    for (int64_t i = 0; i < in.width; ++i) sum += std::exp(Wide(Out(x[i * in.step])) - largest);
    for (int64_t i = 0; i < in.width; ++i)
      y[i * out.step] = Out(std::exp(Wide(Out(x[i * in.step])) - largest) / sum);
  }
}

extern "C" int softmax(const DLTensor* input, int64_t dim, const DLDataType*, DLTensor* out, cgins_stream) {
  if (check_rows(input)) return 1;
  return cgins::dispatch_floating(input, [&](auto in_zero) {
    return cgins::dispatch_floating(out, [&](auto out_zero) {
      softmax_rows(cgins::data<decltype(in_zero)>(input), rows_along(input, dim),
                   cgins::data<decltype(out_zero)>(out), rows_along(out, dim));
      return 0;
    });
  });
}
