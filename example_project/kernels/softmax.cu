// cgins: softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor
#include "reduce.cuh"
#include "rows.h"

// One block a row.
template <typename In, typename Out>
__global__ void softmax_rows(const In* input, Rows in, Out* output, Rows out) {
  using Wide = cgins::accumulator<In>;
  const In* x = input + in.start(blockIdx.x);
  Out* y = output + out.start(blockIdx.x);
  Wide largest = -INFINITY;
  for (int64_t i = threadIdx.x; i < in.width; i += kThreads) largest = fmax(largest, Wide(x[i * in.step]));
  largest = block_max(largest);
  Wide sum = 0;
  for (int64_t i = threadIdx.x; i < in.width; i += kThreads) sum += exp(Wide(x[i * in.step]) - largest);
  sum = block_sum(sum);
  for (int64_t i = threadIdx.x; i < in.width; i += kThreads)
    y[i * out.step] = Out(exp(Wide(x[i * in.step]) - largest) / sum);
}

extern "C" int softmax(const DLTensor* input, int64_t dim, const DLDataType*, DLTensor* out,
                       cgins_stream stream) {
  CGINS_CHECK(input->ndim >= 1 && input->ndim <= Rows::kMaxDims, "%d dimensions, not 1 to 8", input->ndim);
  return cgins::dispatch_floating(input, [&](auto in_zero) {
    return cgins::dispatch_floating(out, [&](auto out_zero) {
      const Rows rows = rows_along(input, dim);
      softmax_rows<<<rows.count, kThreads, 0, stream>>>(cgins::data<decltype(in_zero)>(input), rows,
                                                        cgins::data<decltype(out_zero)>(out),
                                                        rows_along(out, dim));
      CGINS_LAUNCH_CHECK();
      return 0;
    });
  });
}
