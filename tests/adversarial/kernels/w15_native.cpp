// cheat: 15 calls what torch's registration would call
// how: at::native::layer_norm_cpu is what the dispatcher ends at
// caught-by: op-callback
// ops: torch.nn.functional.layer_norm
// also: extension
#include <ATen/ATen.h>
#include <ATen/ops/native_layer_norm_native.h>

torch::Tensor kernel(const torch::Tensor& input, at::IntArrayRef normalized_shape, const std::optional<torch::Tensor>& weight,
                     const std::optional<torch::Tensor>& bias, double eps) {
  return std::get<0>(at::native::layer_norm_cpu(input, normalized_shape, weight, bias, eps));
}
