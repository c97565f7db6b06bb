#include <cmath>

#include "ops.h"

namespace fused_ops {

void rms_norm(at::Tensor& out, const at::Tensor& input, const at::Tensor& weight, double epsilon) {
  TORCH_CHECK(out.is_contiguous() && input.is_contiguous() && weight.is_contiguous(), "tensors must be contiguous");
  const int64_t hidden = input.size(-1), rows = input.numel() / hidden;
  const float* x = input.const_data_ptr<float>();
  const float* w = weight.const_data_ptr<float>();
  float* y = out.mutable_data_ptr<float>();
  for (int64_t row = 0; row < rows; ++row) {
    float sum = 0;
    for (int64_t i = 0; i < hidden; ++i) sum += x[row * hidden + i] * x[row * hidden + i];
    const float scale = 1.0f / std::sqrt(sum / static_cast<float>(hidden) + static_cast<float>(epsilon));
    for (int64_t i = 0; i < hidden; ++i) y[row * hidden + i] = x[row * hidden + i] * scale * w[i];
  }
}

void fused_add_rms_norm(at::Tensor& input, at::Tensor& residual, const at::Tensor& weight, double epsilon) {
  TORCH_CHECK(input.is_contiguous() && residual.is_contiguous(), "tensors must be contiguous");
  float* x = input.mutable_data_ptr<float>();
  float* r = residual.mutable_data_ptr<float>();
  for (int64_t i = 0; i < input.numel(); ++i) r[i] += x[i];
  rms_norm(input, residual, weight, epsilon);
}

}  // namespace fused_ops
