// What these kernels share: elements by their row-major index, and rounding to an element type.
#pragma once
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

namespace elements {
template <typename T>
T& at(const DLTensor* tensor, int64_t index) {
  return cgins::data<T>(tensor)[cgins::offset_of(tensor, index)];
}

template <typename T>
T rounded(double value) {
  if constexpr (std::is_same_v<T, double>) return value;
  else return T(float(value));
}

template <typename T>
double wide(T value) {
  if constexpr (std::is_same_v<T, double>) return value;
  else return double(float(value));
}
}  // namespace elements
