// Cross entropy over class indices: one thread a row, or one for them all.
#pragma once
#include "cross_entropy.h"
#include "variant.h"

template <typename T, typename Loss>
struct Losses {
  const T* input;
  const int64_t* target;
  T* out;
  Rows rows;
  int64_t ignore_index;
  Reduction reduction;
  CGINS_HOST_DEVICE void operator()(int64_t i) const {
    using Number = decltype(Loss::template of<T>(row_of(input, rows, 0), 0, 0));
    Number sum = 0;
    int64_t counted = 0;
    const bool all = reduction != Reduction::none;
    for (int64_t row = all ? 0 : i; row < (all ? rows.count : i + 1); ++row) {
      if (target[row] == ignore_index) continue;
      sum += Loss::template of<T>(row_of(input, rows, row), rows.width, target[row]);
      ++counted;
    }
    out[i] = T(Wide<T>(reduction == Reduction::mean ? sum / counted : sum));
  }
};

// Loss::of<T>(x, width, target) gives the loss of one row.
template <typename Loss>
int cross_entropy_by(const DLTensor* input, const DLTensor* target, int64_t ignore_index, const char* reduction,
                     int64_t reduction_len, DLTensor* out, cgins_stream stream) {
  Reduction reduce;
  if (describe(input, target, out, reduction, reduction_len, &reduce)) return 1;
  const Rows rows = classes_of(input);
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const Losses<T, Loss> losses{cgins::data<T>(input), cgins::data<int64_t>(target), cgins::data<T>(out), rows,
                                 ignore_index, reduce};
    return each(reduce == Reduction::none ? rows.count : 1, stream, losses);
  });
}
