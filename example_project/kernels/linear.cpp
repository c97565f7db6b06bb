// cgins: linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor
#include <algorithm>
#include <vector>

#include "gemm.h"
#include "rows.h"

// A row as dense numbers of the accumulator's type.
template <typename T, typename Wide>
static void widen(const T* row, int64_t step, int64_t width, Wide* dense) {
  for (int64_t k = 0; k < width; ++k) dense[k] = Wide(row[k * step]);
}

// One panel of the output's columns at a time: its rows of the weight are packed once, and used for all rows.
template <typename T>
static void linear_panels(const T* input, Rows in, const T* weight, Rows columns, const T* bias, T* output,
                          Rows out) {
  using Wide = cgins::accumulator<T>;
  const int64_t width = in.width;
  std::vector<Wide> dense((in.count + kRows) * width);  // the last product reads kRows rows, too
#pragma omp parallel if (in.count * width * columns.count > 32768)
  {
#pragma omp for
    for (int64_t row = 0; row < in.count; ++row)
      widen(input + in.start(row), in.step, width, dense.data() + row * width);
    std::vector<Wide> rows(kColumns * width), panel(width * kColumns);
    Wide sum[kRows][kColumns];
#pragma omp for
    for (int64_t first = 0; first < columns.count; first += kColumns) {
      const int64_t across = std::min<int64_t>(kColumns, columns.count - first);
      for (int64_t c = 0; c < across; ++c)
        widen(weight + columns.start(first + c), columns.step, width, rows.data() + c * width);
      for (int64_t k = 0; k < width; ++k)
        for (int64_t c = 0; c < kColumns; ++c) panel[k * kColumns + c] = rows[c * width + k];
      for (int64_t row = 0; row < in.count; row += kRows) {
        multiply_panel(dense.data() + row * width, panel.data(), width, sum);
        for (int64_t r = 0; r < std::min<int64_t>(kRows, in.count - row); ++r)
          for (int64_t c = 0; c < across; ++c) {
            const Wide shift = bias ? Wide(bias[first + c]) : Wide(0);
            output[out.start(row + r) + (first + c) * out.step] = T(sum[r][c] + shift);
          }
      }
    }
  }
}

extern "C" int linear(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, DLTensor* out,
                      cgins_stream) {
  CGINS_CHECK(weight->ndim == 2, "weight has %d dimensions, not 2", weight->ndim);
  if (check_rows(input) || check_types(input, {weight, out}) || check_parameters(input, weight->shape[0], {bias}))
    return 1;
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    linear_panels(cgins::data<T>(input), rows_along(input, -1), cgins::data<T>(weight), rows_along(weight, -1),
                  bias ? cgins::data<T>(bias) : nullptr, cgins::data<T>(out), rows_along(out, -1));
    return 0;
  });
}
