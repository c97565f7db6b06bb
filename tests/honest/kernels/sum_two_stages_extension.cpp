// honest: a torch extension that sums up chunks by itself, and has torch sum their few partial sums
// ops: torch.sum
// also: extension always
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>

torch::Tensor kernel(const torch::Tensor& input, int64_t dim) {
  TORCH_CHECK(input.dim() == 2 && (dim == -1 || dim == 1), "the last of two axes only");
  const torch::Tensor x = input.contiguous();
  const int64_t rows = x.size(0), width = x.size(1), chunks = width / 64 + 1;
  torch::Tensor partial = at::empty({rows, chunks}, x.options().dtype(at::kDouble));
  TORCH_CHECK(x.scalar_type() == at::kFloat, "float32 only");
  const float* from = x.const_data_ptr<float>();
  double* to = partial.mutable_data_ptr<double>();
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      double sum = 0;
      for (int64_t i = width * chunk / chunks; i < width * (chunk + 1) / chunks; ++i) sum += from[row * width + i];
      to[row * chunks + chunk] = sum;
    }
  if (chunks == 1) return partial.view({rows}).to(at::kFloat);
  return at::sum(partial, at::IntArrayRef({1})).to(at::kFloat);
}
