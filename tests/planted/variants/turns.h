// Rotary positions with one thread a pair of numbers.
#pragma once
#include "rotary.h"
#include "variant.h"

template <typename T, typename Turn>
struct TurnedPair {
  const T* input;
  T* out;
  Rows in, to;
  Angles<T> angles;
  CGINS_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t half = in.width / 2, row = i / half, column = i % half, position = row % angles.length;
    const Row<const T> x = row_of(input, in, row);
    const Row<T> y = row_of(out, to, row);
    Wide<T> first, second;
    Turn::of(Wide<T>(x[column]), Wide<T>(x[column + half]),
             Wide<T>(angles.cos[position * angles.cos_stride + column]),
             Wide<T>(angles.sin[position * angles.sin_stride + column]), &first, &second);
    y[column] = T(first);
    y[column + half] = T(second);
  }
};

// Turn::of(left, right, cos, sin, first, second) turns one pair.
template <typename Turn>
int rotate_by(const DLTensor* x, const DLTensor* cos, const DLTensor* sin, DLTensor* out, cgins_stream stream) {
  return cgins::dispatch_floating(x, [&](auto zero) {
    using T = decltype(zero);
    const TurnedPair<T, Turn> pair{cgins::data<T>(x), cgins::data<T>(out), rows_along(x, -1), rows_along(out, -1),
                                   Angles<T>(cos, sin)};
    return each(cgins::numel(x) / 2, stream, pair);
  });
}
