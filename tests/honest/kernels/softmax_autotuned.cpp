// honest: times two variants at its first call and keeps the faster one
// ops: torch.nn.functional.softmax
// packs: f32 f16 bf16
// cgins: softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor
#include <chrono>

#include "_sums.h"

// The same arithmetic by both: which one wins must not show in the answer.
template <typename T, int kUnroll>
static void rows(const DLTensor* input, const DLTensor* out) {
  const int64_t width = cgins::size(input, -1);
  for (int64_t row = 0; width && row < cgins::numel(input) / width; ++row) {
    std::vector<float> x = row_of<T>(input, row);
    float largest = -INFINITY, sum = 0;
    for (const float value : x) largest = std::fmax(largest, value);
#pragma GCC unroll 4
    for (int64_t i = 0; i < width; ++i) x[i] = std::exp(x[i] - largest);
    for (const float value : x) sum += value;
    for (int64_t i = 0; i < width; ++i) at<T>(out, row * width + i) = T(x[i] / sum);
  }
}

template <typename T>
static int64_t nanoseconds(void (*variant)(const DLTensor*, const DLTensor*), const DLTensor* input, const DLTensor* out) {
  const auto start = std::chrono::steady_clock::now();
  variant(input, out);
  return (std::chrono::steady_clock::now() - start).count();
}

extern "C" int softmax(const DLTensor* input, int64_t dim, const DLDataType*, DLTensor* out, cgins_stream) {
  CGINS_CHECK(dim == -1 || dim == input->ndim - 1, "the last axis only");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    static const auto chosen =
        nanoseconds<T>(rows<T, 1>, input, out) < nanoseconds<T>(rows<T, 4>, input, out) ? rows<T, 1> : rows<T, 4>;
    chosen(input, out);
    return 0;
  });
}
