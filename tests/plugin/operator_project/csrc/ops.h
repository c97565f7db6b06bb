#pragma once
#include <ATen/core/Tensor.h>

namespace fused_ops {
void rms_norm(at::Tensor& out, const at::Tensor& input, const at::Tensor& weight, double epsilon);
void fused_add_rms_norm(at::Tensor& input, at::Tensor& residual, const at::Tensor& weight, double epsilon);
void silu_and_mul(at::Tensor& out, const at::Tensor& input);
at::Tensor scaled_add(const at::Tensor& x, const at::Tensor& y, double scale);
at::Tensor& scaled_add_out(const at::Tensor& x, const at::Tensor& y, double scale, at::Tensor& out);
}  // namespace fused_ops
