// exemplar: torch.bmm, matmul, launcher, cpp
// cgins: bmm(Tensor input, Tensor mat2) -> Tensor
#include <algorithm>

constexpr int64_t kColumns = 64;  // of the output, whose sums one row keeps in registers and L1

// A row of the output: each number of `a` is used for kColumns columns of `b`, which are read side by side.
template <typename T>
static void multiply_row(const T* a, int64_t a_step, const T* b, const int64_t* b_strides, int64_t depth, T* out,
                         int64_t out_step, int64_t columns) {
  using Wide = cgins::accumulator<T>;
  for (int64_t first = 0; first < columns; first += kColumns) {
    const int64_t count = std::min(kColumns, columns - first);
    Wide sum[kColumns] = {};
    for (int64_t k = 0; k < depth; ++k) {
      const Wide factor = Wide(a[k * a_step]);
      const T* row = b + k * b_strides[1] + first * b_strides[2];
      for (int64_t c = 0; c < count; ++c) sum[c] += factor * Wide(row[c * b_strides[2]]);
    }
    for (int64_t c = 0; c < count; ++c) out[(first + c) * out_step] = T(sum[c]);
  }
}

extern "C" int bmm(const DLTensor* input, const DLTensor* mat2, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::dtype_of(input) == cgins::dtype_of(mat2), "element types differ");
  const int64_t rows = input->shape[1], depth = input->shape[2], columns = mat2->shape[2];
  const int64_t *a = input->strides, *b = mat2->strides, *y = out->strides;
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
#pragma omp parallel for if (cgins::numel(out) * depth > 32768)
    for (int64_t i = 0; i < input->shape[0] * rows; ++i)
      multiply_row(cgins::data<T>(input) + i / rows * a[0] + i % rows * a[1], a[2],
                   cgins::data<T>(mat2) + i / rows * b[0], b, depth,
                   cgins::data<T>(out) + i / rows * y[0] + i % rows * y[1], y[2], columns);
    return 0;
  });
}
