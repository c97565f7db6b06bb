// cgins: softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor
#include "reduce.cuh"
#include "rows.h"

// One block a row. As torch has it, the input is converted to the output's element type first.
template <typename In, typename Out>
__global__ void softmax_rows(const In* input, Rows in, Out* output, Rows out) {
  using Wide = cgins::accumulator<Out>;
  const In* x = input + in.start(blockIdx.x);
  Out* y = output + out.start(blockIdx.x);
  Wide largest = -INFINITY;
  for (int64_t i = threadIdx.x; i < in.width; i += kThreads) largest = fmax(largest, Wide(Out(x[i * in.step])));
  largest = block_max(largest);
  Wide sum = 0;
  for (int64_t i = threadIdx.x; i < in.width; i += kThreads) sum += exp(Wide(Out(x[i * in.step])) - largest);
  sum = block_sum(sum);
  for (int64_t i = threadIdx.x; i < in.width; i += kThreads)
    y[i * out.step] = Out(exp(Wide(Out(x[i * in.step])) - largest) / sum);
}

extern "C" int softmax(const DLTensor* input, int64_t dim, const DLDataType*, DLTensor* out,
                       cgins_stream stream) {
  if (check_rows(input)) return 1;
  const Rows rows = rows_along(input, dim);
  if (check_grid(rows.count)) return 1;
  if (rows.count == 0) return 0;
  return cgins::dispatch_floating(input, [&](auto in_zero) {
    return cgins::dispatch_floating(out, [&](auto out_zero) {
      softmax_rows<<<rows.count, kThreads, 0, stream>>>(cgins::data<decltype(in_zero)>(input), rows,
                                                        cgins::data<decltype(out_zero)>(out),
                                                        rows_along(out, dim));
      CGINS_LAUNCH_CHECK();
      return 0;
    });
  });
}
