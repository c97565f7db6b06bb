// cgins: apply_rotary(Tensor query, Tensor key, Tensor cos, Tensor sin)
//     -> (Tensor rotated_query, Tensor rotated_key)
#include "rotary.h"

constexpr int kWarps = 8;

// One warp a row: rotates its pairs (x[i], x[i + half]) by the angles of its position.
template <typename T>
__global__ void rotate_rows(const T* input, Rows in, Angles<T> angles, T* output, Rows out) {
  using Wide = cgins::accumulator<T>;
  const int64_t row = blockIdx.x * int64_t(kWarps) + threadIdx.y, half = in.width / 2;
  if (row >= in.count) return;
  const T* x = input + in.start(row);
  T* y = output + out.start(row);
  const T* cos = angles.cos + row % angles.length * angles.cos_stride;
  const T* sin = angles.sin + row % angles.length * angles.sin_stride;
  for (int64_t i = threadIdx.x; i < half; i += 32) {
    const Wide left = Wide(x[i * in.step]), right = Wide(x[(i + half) * in.step]);
    y[i * out.step] = T(left * Wide(cos[i]) - right * Wide(sin[i]));
    y[(i + half) * out.step] = T(right * Wide(cos[i]) + left * Wide(sin[i]));
  }
}

template <typename T>
static int rotate(const DLTensor* input, Angles<T> angles, DLTensor* out, cgins_stream stream) {
  const Rows rows = rows_along(input, -1);
  if (check_grid(rows.count / kWarps)) return 1;
  if (rows.count == 0) return 0;
  rotate_rows<<<(rows.count + kWarps - 1) / kWarps, dim3(32, kWarps), 0, stream>>>(
      cgins::data<const T>(input), rows, angles, cgins::data<T>(out), rows_along(out, -1));
  CGINS_LAUNCH_CHECK();
  return 0;
}

extern "C" int apply_rotary(const DLTensor* query, const DLTensor* key, const DLTensor* cos,
                            const DLTensor* sin, DLTensor* rotated_query, DLTensor* rotated_key,
                            cgins_stream stream) {
  if (check_angles(query, cos, sin, rotated_query) || check_angles(key, cos, sin, rotated_key)) return 1;
  return cgins::dispatch_floating(query, [&](auto zero) {
    using T = decltype(zero);
    const Angles<T> angles(cos, sin);
    const int error = rotate<T>(query, angles, rotated_query, stream);
    return error ? error : rotate<T>(key, angles, rotated_key, stream);
  });
}
