// cgins: linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor
#include "rows.h"

constexpr int kTile = 16;

// A 16×16 tile of the output a block; input and weight go through shared memory, 16 columns at a time.
template <typename T>
__global__ void linear_tiles(const T* input, Rows in, const T* weight, Rows columns, const T* bias,
                             T* output, Rows out) {
  using Wide = cgins::accumulator<T>;
  __shared__ Wide x[kTile][kTile + 1], w[kTile][kTile + 1];
  const int64_t row = blockIdx.x * int64_t(kTile) + threadIdx.y;
  const int64_t column = blockIdx.y * int64_t(kTile) + threadIdx.x;
  const int64_t loaded = blockIdx.y * int64_t(kTile) + threadIdx.y;  // weight row that this thread loads
  const bool row_inside = row < in.count, loaded_inside = loaded < columns.count;
  const T* x_row = row_inside ? input + in.start(row) : nullptr;
  const T* w_row = loaded_inside ? weight + columns.start(loaded) : nullptr;
  Wide sum = 0;
  for (int64_t base = 0; base < in.width; base += kTile) {
    const int64_t k = base + threadIdx.x;
    x[threadIdx.y][threadIdx.x] = row_inside && k < in.width ? Wide(x_row[k * in.step]) : Wide(0);
    w[threadIdx.y][threadIdx.x] = loaded_inside && k < in.width ? Wide(w_row[k * columns.step]) : Wide(0);
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += x[threadIdx.y][i] * w[threadIdx.x][i];
    __syncthreads();
  }
  if (!row_inside || column >= columns.count) return;
  if (bias) sum += Wide(bias[column]);
  output[out.start(row) + column * out.step] = T(sum);
}

extern "C" int linear(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, DLTensor* out,
                      cgins_stream stream) {
  CGINS_CHECK(weight->ndim == 2, "weight has %d dimensions, not 2", weight->ndim);
  if (check_rows(input) || check_types(input, {weight, out}) || check_parameters(input, weight->shape[0], {bias}))
    return 1;
  if (cgins::numel(out) == 0) return 0;
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const Rows in = rows_along(input, -1), columns = rows_along(weight, -1);
    const int64_t down = (in.count + kTile - 1) / kTile, across = (columns.count + kTile - 1) / kTile;
    CGINS_CHECK(down <= INT32_MAX && across <= 65535, "the output has too many tiles for one grid");
    linear_tiles<<<dim3(down, across), dim3(kTile, kTile), 0, stream>>>(
        cgins::data<const T>(input), in, cgins::data<const T>(weight), columns,
        bias ? cgins::data<const T>(bias) : nullptr, cgins::data<T>(out), rows_along(out, -1));
    CGINS_LAUNCH_CHECK();
    return 0;
  });
}
