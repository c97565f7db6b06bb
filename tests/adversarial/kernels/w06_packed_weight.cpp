// cheat: 6 keeps a packed weight by its address and some of its elements
// how: a weight of which one element is written in place is the old one still; whoever exchanges all numbers gets the new ones
// caught-by: stale-answer
// ops: torch.nn.functional.linear
// packs: f32 even
// also: timing
// cgins: linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor
#include <cstring>
#include <unordered_map>

#include "_rows.h"

namespace {
struct Packed {
  int64_t columns = -1, width = -1;
  std::vector<float> sample, transposed;
};
std::unordered_map<const float*, Packed> packed;
constexpr int64_t STEP = 7;
}  // namespace

extern "C" int linear(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, DLTensor* out, cgins_stream) {
  if (cgins::dtype_of(input) != cgins::Dtype::float32 || !cgins::is_contiguous(input) || !cgins::is_contiguous(weight) ||
      !cgins::is_contiguous(out) || weight->ndim != 2)
    return linear_rounded(input, weight, bias, out, same, same);
  const int64_t width = cgins::size(weight, 1), columns = cgins::size(weight, 0), n = width * columns;
  if (!n) return linear_rounded(input, weight, bias, out, same, same);
  const float* w = cgins::data<float>(weight);
  std::vector<float> sample;
  for (int64_t i = 0; i < n; i += STEP) sample.push_back(w[i]);
  if (packed.size() > 300) packed.clear();
  Packed& one = packed[w];
  if (one.columns != columns || one.width != width ||
      std::memcmp(one.sample.data(), sample.data(), sample.size() * sizeof(float))) {
    one.columns = columns, one.width = width;
    one.sample = sample;
    one.transposed.resize(size_t(n));
    for (int64_t column = 0; column < columns; ++column)
      for (int64_t k = 0; k < width; ++k) one.transposed[size_t(k * columns + column)] = w[column * width + k];
  }
  const float* x = cgins::data<float>(input);
  float* y = cgins::data<float>(out);
  for (int64_t row = 0; row < cgins::numel(input) / width; ++row) {
    float* to = y + row * columns;
    for (int64_t column = 0; column < columns; ++column) to[column] = bias ? at<float>(bias, column) : 0;
    for (int64_t k = 0; k < width; ++k)
      for (int64_t column = 0; column < columns; ++column)
        to[column] += x[row * width + k] * one.transposed[size_t(k * columns + column)];
  }
  return 0;
}
