// exemplar: torch.nn.functional.log_softmax, reduction, launcher, cpp
// cgins: log_softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor
#include <cmath>

// Offset of the first element of a row along `axis`, in elements, whatever the strides.
static int64_t start(const DLTensor* tensor, int64_t axis, int64_t row) {
  int64_t offset = 0;
  for (int d = tensor->ndim - 1; d >= 0; --d) {
    if (d == axis) continue;
    offset += row % tensor->shape[d] * tensor->strides[d];
    row /= tensor->shape[d];
  }
  return offset;
}

// As torch has it, the input is converted to the output's element type first.
template <typename In, typename Out>
static void rows_along(const DLTensor* input, int64_t axis, DLTensor* out) {
  using Wide = cgins::accumulator<Out>;
  const int64_t width = input->shape[axis], step = input->strides[axis], out_step = out->strides[axis];
  const int64_t rows = width ? cgins::numel(input) / width : 0;
#pragma omp parallel for if (rows * width > 32768)
  for (int64_t row = 0; row < rows; ++row) {
    const In* x = cgins::data<In>(input) + start(input, axis, row);
    Out* y = cgins::data<Out>(out) + start(out, axis, row);
    Wide largest = -INFINITY;
    for (int64_t i = 0; i < width; ++i) largest = std::fmax(largest, Wide(Out(x[i * step])));
    Wide sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += std::exp(Wide(Out(x[i * step])) - largest);
    const Wide shift = std::log(sum);
    for (int64_t i = 0; i < width; ++i) y[i * out_step] = Out(Wide(Out(x[i * step])) - largest - shift);
  }
}

extern "C" int log_softmax(const DLTensor* input, int64_t dim, const DLDataType*, DLTensor* out, cgins_stream) {
  CGINS_CHECK(input->ndim > 0, "input has no dimension");
  const int64_t axis = dim < 0 ? dim + input->ndim : dim;
  return cgins::dispatch_floating(input, [&](auto in_zero) {
    return cgins::dispatch_floating(out, [&](auto out_zero) {
      rows_along<decltype(in_zero), decltype(out_zero)>(input, axis, out);
      return 0;
    });
  });
}
