// cgins: linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor
#include <vector>

#include "rows.h"

// A row as dense numbers of the accumulator's type.
template <typename T, typename Wide>
static void widen(const T* row, int64_t step, int64_t width, Wide* dense) {
  for (int64_t k = 0; k < width; ++k) dense[k] = Wide(row[k * step]);
}

// Apart from the loops around it, which keep compilers from vectorizing it when inlined.
template <typename T, typename Wide>
__attribute__((noinline)) static Wide dot(const Wide* x, const Wide* w, int64_t width) {
  Wide sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t k = 0; k < width; ++k) sum += x[k] * w[k];
  return sum;
}

template <typename T>
static void linear_rows(const T* input, Rows in, const T* weight, Rows columns, const T* bias, T* output,
                        Rows out) {
  using Wide = cgins::accumulator<T>;
  const int64_t width = in.width;
  std::vector<Wide> dense(in.count * width);
#pragma omp parallel if (in.count * width * columns.count > 32768)
  {
#pragma omp for
    for (int64_t row = 0; row < in.count; ++row)
      widen(input + in.start(row), in.step, width, dense.data() + row * width);
    std::vector<Wide> column(width);
#pragma omp for
    for (int64_t n = 0; n < columns.count; ++n) {
      Wide* w = column.data();
      widen(weight + columns.start(n), columns.step, width, w);
      for (int64_t row = 0; row < in.count; ++row) {
        const Wide* x = dense.data() + row * width;
        Wide sum = dot<T>(x, w, width);
        if (bias) sum += Wide(bias[n]);
        output[out.start(row) + n * out.step] = T(sum);
      }
    }
  }
}

extern "C" int linear(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, DLTensor* out,
                      cgins_stream) {
  CGINS_CHECK(weight->ndim == 2, "weight has %d dimensions, not 2", weight->ndim);
  CGINS_CHECK(!bias || cgins::is_contiguous(bias), "bias must be contiguous");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    linear_rows(cgins::data<T>(input), rows_along(input, -1), cgins::data<T>(weight), rows_along(weight, -1),
                bias ? cgins::data<T>(bias) : nullptr, cgins::data<T>(out), rows_along(out, -1));
    return 0;
  });
}
