"""Sources that are right, and those that are not quite, which the exam begins with."""

LAYER_NORM = """\
// cgins: layer_norm(Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> Tensor
#include <cgins.h>

#include <cmath>

#include "rows.h"

extern "C" int layer_norm(const DLTensor* input, const int64_t* normalized_shape, int64_t normalized_shape_len,
                          const DLTensor* weight, const DLTensor* bias, double eps, DLTensor* out, cgins_stream) {
  CGINS_CHECK(normalized_shape_len == 1, "one normalized axis only");
  CGINS_CHECK(cgins::dtype_of(input) == cgins::Dtype::float32 && cgins::is_contiguous(input), "contiguous fp32 only");
  CGINS_CHECK(!weight || cgins::is_contiguous(weight), "a contiguous weight only");
  CGINS_CHECK(!bias || cgins::is_contiguous(bias), "a contiguous bias only");
  const int64_t width = normalized_shape[0];
  const int64_t rows = width ? cgins::numel(input) / width : 0;
#pragma omp parallel for if (rows > ROWS_PER_BLOCK)
  for (int64_t row = 0; row < rows; ++row) {
    const float* x = cgins::data<float>(input) + row * width;
    float* y = cgins::data<float>(out) + row * width;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < width; ++i) sum += x[i];
    const double mean = sum / double(width);
    for (int64_t i = 0; i < width; ++i) squares += (x[i] - mean) * (x[i] - mean);
    const double scale = 1 / std::sqrt(squares / double(width) + eps);
    for (int64_t i = 0; i < width; ++i) {
      double value = (x[i] - mean) * scale;
      if (weight) value *= cgins::data<float>(weight)[i];
      if (bias) value += cgins::data<float>(bias)[i];
      y[i] = float(value);
    }
  }
  return 0;
}
"""
RELU_PYTHON = """\
import torch


def relu(input, inplace=False):
    return torch.where(input < 0, torch.zeros_like(input), input)
"""
RELU = """\
// cgins: relu(Tensor input, bool inplace=False) -> Tensor
#include <cgins.h>

extern "C" int relu(const DLTensor* input, bool, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::dtype_of(input) == cgins::Dtype::float32 && cgins::is_contiguous(input), "contiguous fp32 only");
  const float* x = cgins::data<float>(input);
  float* y = cgins::data<float>(out);
  const int64_t count = cgins::numel(input);
  for (int64_t i = 0; i < count; ++i) {
    y[i] = x[i] < 0 ? 0 : x[i];
  }
  return 0;
}
"""
BROKEN_LAYER_NORM = LAYER_NORM.replace(
    "for (int64_t i = 0; i < width; ++i) sum", "for (int64_t i = 0; i < width - 1; ++i) sum"
)
BROKEN_RELU_PYTHON = "def relu(input, inplace=False):\n    return input\n"
BROKEN_RELU = RELU.replace("i < count; ++i", "i < count - 1; ++i")
