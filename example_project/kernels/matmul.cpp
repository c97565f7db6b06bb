// cgins: matmul(Tensor input, Tensor other) -> Tensor
#include <algorithm>
#include <vector>

#include "gemm.h"
#include "matmul.h"

// One panel of the output's columns at a time: other's panel is packed once, and used for all rows.
template <typename T>
static void matmul_panels(const T* input, const T* other, T* out, const Product& p) {
  using Wide = cgins::accumulator<T>;
  const int64_t panels = (p.columns + kColumns - 1) / kColumns;
#pragma omp parallel if (p.batch.count * p.rows * p.columns * p.depth > 32768)
  {
    std::vector<Wide> packed_rows(kRows * p.depth), packed_columns(p.depth * kColumns);
    Wide *a = packed_rows.data(), *b = packed_columns.data(), sum[kRows][kColumns];
#pragma omp for
    for (int64_t task = 0; task < p.batch.count * panels; ++task) {
      const Offsets<3> matrix = p.batch.offsets(task / panels);
      const int64_t first = task % panels * kColumns, width = std::min<int64_t>(kColumns, p.columns - first);
      const T* y = other + matrix[2] + first * p.other_column;
      for (int64_t k = 0; k < p.depth; ++k)
        for (int64_t c = 0; c < width; ++c) b[k * kColumns + c] = Wide(y[k * p.other_row + c * p.other_column]);
      for (int64_t row = 0; row < p.rows; row += kRows) {
        const int64_t height = std::min<int64_t>(kRows, p.rows - row);
        for (int64_t r = 0; r < height; ++r) {
          const T* x = input + matrix[1] + (row + r) * p.input_row;
          for (int64_t k = 0; k < p.depth; ++k) a[r * p.depth + k] = Wide(x[k * p.input_column]);
        }
        multiply_panel(a, b, p.depth, sum);
        for (int64_t r = 0; r < height; ++r)
          for (int64_t c = 0; c < width; ++c)
            out[matrix[0] + (row + r) * p.out_row + (first + c) * p.out_column] = T(sum[r][c]);
      }
    }
  }
}

extern "C" int matmul(const DLTensor* input, const DLTensor* other, DLTensor* out, cgins_stream) {
  Product product;
  if (describe(input, other, out, &product)) return 1;
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    matmul_panels(cgins::data<T>(input), cgins::data<T>(other), cgins::data<T>(out), product);
    return 0;
  });
}
