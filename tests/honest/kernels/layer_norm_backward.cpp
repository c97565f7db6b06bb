// honest: gradients of rows, weights and biases in one pass over rows, with sums in double that are kept as the threads' own
// ops: torch.nn.functional.layer_norm@backward(input,weight,bias)
// packs: gradients
// also: always
// cgins: layer_norm_backward(Tensor grad_output, Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-5) -> (Tensor grad_input, Tensor grad_weight, Tensor grad_bias)
#include <omp.h>

#include "_elements.h"

extern "C" int layer_norm_backward(const DLTensor* grad_output, const DLTensor* input, const int64_t* normalized_shape,
                                   int64_t normalized_shape_len, const DLTensor* weight, const DLTensor* bias, double eps,
                                   DLTensor* grad_input, DLTensor* grad_weight, DLTensor* grad_bias, cgins_stream) {
  CGINS_CHECK(weight && bias, "with weight and bias only");
  int64_t width = 1;
  for (int64_t d = 0; d < normalized_shape_len; ++d) width *= normalized_shape[d];
  const int64_t rows = width ? cgins::numel(input) / width : 0;
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    constexpr int kParts = 4;  // a fixed number, so that the order of addition does not depend on the threads
    std::vector<double> of_weight(kParts * width), of_bias(kParts * width);
#pragma omp parallel for schedule(dynamic)
    for (int part = 0; part < kParts; ++part) {
      std::vector<double> normal(width), gradient(width);
      for (int64_t row = part; row < rows; row += kParts) {
        double mean = 0, squares = 0, sum = 0, product = 0;
        for (int64_t i = 0; i < width; ++i) mean += normal[i] = elements::wide(elements::at<T>(input, row * width + i));
        mean /= double(width);
        for (const double x : normal) squares += (x - mean) * (x - mean);
        const double scale = 1 / std::sqrt(squares / double(width) + eps);
        for (int64_t i = 0; i < width; ++i) {
          const double g = elements::wide(elements::at<T>(grad_output, row * width + i));
          normal[i] = (normal[i] - mean) * scale;
          of_weight[part * width + i] += g * normal[i];
          of_bias[part * width + i] += g;
          gradient[i] = g * elements::wide(elements::at<T>(weight, i));
          sum += gradient[i];
          product += gradient[i] * normal[i];
        }
        for (int64_t i = 0; i < width; ++i)
          elements::at<T>(grad_input, row * width + i) =
              elements::rounded<T>((gradient[i] - sum / double(width) - normal[i] * product / double(width)) * scale);
      }
    }
    for (int64_t i = 0; i < width; ++i) {
      double w = 0, b = 0;
      for (int part = 0; part < kParts; ++part) w += of_weight[part * width + i], b += of_bias[part * width + i];
      elements::at<T>(grad_weight, i) = elements::rounded<T>(w);
      elements::at<T>(grad_bias, i) = elements::rounded<T>(b);
    }
    return 0;
  });
}
