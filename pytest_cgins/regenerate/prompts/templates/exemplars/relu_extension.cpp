// exemplar: torch.nn.functional.relu, elementwise, torch-extension, cpp
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

torch::Tensor relu(const torch::Tensor& input) {
  TORCH_CHECK(input.device().is_cpu(), "input is on ", input.device(), ", not on the CPU");
  const torch::Tensor x = input.contiguous();
  torch::Tensor out = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "relu", [&] {
    const scalar_t* from = x.const_data_ptr<scalar_t>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, x.numel(), at::internal::GRAIN_SIZE, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = from[i] < scalar_t(0) ? scalar_t(0) : from[i];
    });
  });
  return out;
}
