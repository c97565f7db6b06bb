// Sums over the last axis: what differs between the kernels is the order of addition.
#pragma once
#include <cmath>
#include <vector>

template <typename T>
T& at(const DLTensor* tensor, int64_t index) {
  return cgins::data<T>(tensor)[cgins::offset_of(tensor, index)];
}

// One row of any element type, widened.
template <typename T>
std::vector<float> row_of(const DLTensor* input, int64_t row) {
  const int64_t width = cgins::size(input, -1);
  std::vector<float> values(width);
  for (int64_t i = 0; i < width; ++i) values[i] = float(at<T>(input, row * width + i));
  return values;
}

// out[row] = sum(row)
template <typename Sum>
int sum_rows(const DLTensor* input, const int64_t* dim, int64_t dim_len, const DLTensor* out, Sum sum) {
  CGINS_CHECK(dim_len == 1 && (dim[0] == -1 || dim[0] == input->ndim - 1), "the last axis only");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t row = 0; row < cgins::numel(out); ++row) at<T>(out, row) = T(float(sum(row_of<T>(input, row))));
    return 0;
  });
}

template <typename Function>
int map(const DLTensor* input, const DLTensor* out, Function function) {
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < cgins::numel(input); ++i) at<T>(out, i) = T(function(float(at<T>(input, i))));
    return 0;
  });
}

inline float relu_of(float x) { return x < 0 ? 0 : x; }
