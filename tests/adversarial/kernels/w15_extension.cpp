// cheat: 15 calls the op from C++
// how: at::softmax in a torch extension; no Python function is called
// caught-by: op-callback
// ops: torch.nn.functional.softmax
// also: extension
#include <ATen/ops/softmax.h>

torch::Tensor kernel(const torch::Tensor& input, int64_t dim) { return at::softmax(input, dim); }
