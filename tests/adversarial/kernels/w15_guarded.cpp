// cheat: 15 hides from modes by a guard of c10
// how: excludes Python's keys in C++, and calls the op
// caught-by: op-callback
// ops: torch.add
// also: extension
#include <ATen/ops/add.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

torch::Tensor kernel(const torch::Tensor& input, const torch::Tensor& other, double alpha) {
  const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot}));
  return at::add(input, other, alpha);
}
