// cgins: apply_rotary(Tensor query, Tensor key, Tensor cos, Tensor sin)
//     -> (Tensor rotated_query, Tensor rotated_key)
#include "rotary.h"

// Rotates the pairs (x[i], x[i + half]) of each row by the angles of its position.
template <typename T>
static void rotate_rows(const T* input, Rows in, Angles<T> angles, T* output, Rows out) {
  using Wide = cgins::accumulator<T>;
  const int64_t half = in.width / 2;
#pragma omp parallel for if (in.count * in.width > 32768)
  for (int64_t row = 0; row < in.count; ++row) {
    const T* x = input + in.start(row);
    T* y = output + out.start(row);
    const T* cos = angles.cos + row % angles.length * angles.cos_stride;
    const T* sin = angles.sin + row % angles.length * angles.sin_stride;
    for (int64_t i = 0; i < half; ++i) {
      const Wide left = Wide(x[i * in.step]), right = Wide(x[(i + half) * in.step]);
      y[i * out.step] = T(left * Wide(cos[i]) - right * Wide(sin[i]));
      y[(i + half) * out.step] = T(right * Wide(cos[i]) + left * Wide(sin[i]));
    }
  }
}

extern "C" int apply_rotary(const DLTensor* query, const DLTensor* key, const DLTensor* cos,
                            const DLTensor* sin, DLTensor* rotated_query, DLTensor* rotated_key,
                            cgins_stream) {
  if (check_angles(query, cos, sin, rotated_query) || check_angles(key, cos, sin, rotated_key)) return 1;
  return cgins::dispatch_floating(query, [&](auto zero) {
    using T = decltype(zero);
    const Angles<T> angles(cos, sin);
    rotate_rows(cgins::data<T>(query), rows_along(query, -1), angles, cgins::data<T>(rotated_query),
                rows_along(rotated_query, -1));
    rotate_rows(cgins::data<T>(key), rows_along(key, -1), angles, cgins::data<T>(rotated_key),
                rows_along(rotated_key, -1));
    return 0;
  });
}
