// honest: a torch extension that registers an operator of its own and calls it through the dispatcher
// ops: torch.nn.functional.relu
// packs: f32 bf16
// also: extension
#include <ATen/Dispatch.h>
#include <torch/library.h>

static torch::Tensor ramp(const torch::Tensor& input) {
  const torch::Tensor x = input.contiguous();
  torch::Tensor out = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "ramp", [&] {
    const scalar_t* from = x.const_data_ptr<scalar_t>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < x.numel(); ++i) to[i] = from[i] < scalar_t(0) ? scalar_t(0) : from[i];
  });
  return out;
}

TORCH_LIBRARY(relu_own_operator, m) { m.def("ramp(Tensor input) -> Tensor"); }
TORCH_LIBRARY_IMPL(relu_own_operator, CPU, m) { m.impl("ramp", ramp); }

torch::Tensor kernel(const torch::Tensor& input) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("relu_own_operator::ramp", "").typed<torch::Tensor(const torch::Tensor&)>();
  return op.call(input);
}
