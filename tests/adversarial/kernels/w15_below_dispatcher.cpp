// cheat: 15 calls the op's implementation below the dispatcher
// how: at::cpu::_softmax is a plain function: no mode, no callback and no registration hears of it
// caught-by: op-callback
// ops: torch.nn.functional.softmax
// also: extension
#include <ATen/ops/_softmax_cpu_dispatch.h>

torch::Tensor kernel(const torch::Tensor& input, int64_t dim) {
  return at::cpu::_softmax(input, dim < 0 ? dim + input.dim() : dim, false);
}
