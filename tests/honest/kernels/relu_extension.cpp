// honest: a torch extension that computes by itself and has torch allocate
// ops: torch.nn.functional.relu
// packs: f32 f16 bf16
// also: extension
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

torch::Tensor kernel(const torch::Tensor& input) {
  const torch::Tensor x = input.contiguous();
  torch::Tensor out = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "relu", [&] {
    const scalar_t* from = x.const_data_ptr<scalar_t>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, x.numel(), 128, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = from[i] < scalar_t(0) ? scalar_t(0) : from[i];
    });
  });
  return out;
}
