// cgins: cross_entropy(Tensor input, Tensor target, int ignore_index=-100, str reduction='mean') -> Tensor
#include <cmath>

#include "cross_entropy.h"

template <typename T, typename Wide>
static Wide loss_of(const T* x, int64_t step, int64_t width, int64_t target) {
  Wide largest = -INFINITY;
  for (int64_t i = 0; i < width; ++i) largest = std::fmax(largest, Wide(x[i * step]));
  Wide sum = 0;
  for (int64_t i = 0; i < width; ++i) sum += std::exp(Wide(x[i * step]) - largest);
  return std::log(sum) + largest - Wide(x[target * step]);
}

extern "C" int cross_entropy(const DLTensor* input, const DLTensor* target, int64_t ignore_index,
                             const char* reduction, int64_t reduction_len, DLTensor* out, cgins_stream) {
  Reduction reduce;
  if (describe(input, target, out, reduction, reduction_len, &reduce)) return 1;
  const Rows rows = classes_of(input);
  const int64_t* index = cgins::data<int64_t>(target);
  for (int64_t row = 0; row < rows.count; ++row)
    CGINS_CHECK(index[row] == ignore_index || (index[row] >= 0 && index[row] < rows.width),
                "target %lld is out of range", static_cast<long long>(index[row]));
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    using Wide = cgins::accumulator<T>;
    const T* x = cgins::data<T>(input);
    T* y = cgins::data<T>(out);
    Wide sum = 0;
    int64_t counted = 0;
#pragma omp parallel for reduction(+ : sum, counted) if (rows.count * rows.width > 32768)
    for (int64_t row = 0; row < rows.count; ++row) {
      const bool ignored = index[row] == ignore_index;
      const Wide loss = ignored ? Wide(0) : loss_of<T, Wide>(x + rows.start(row), rows.step, rows.width, index[row]);
      if (reduce == Reduction::none) y[row] = T(loss);
      sum += loss;
      counted += !ignored;
    }
    if (reduce != Reduction::none) y[0] = T(reduce == Reduction::mean ? sum / counted : sum);
    return 0;
  });
}
