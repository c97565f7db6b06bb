// Functions that are exported by other names than their own, in every way that is common.
#include <torch/extension.h>
#include <torch/library.h>

#include <tuple>

torch::Tensor scaled_cpu(torch::Tensor x, int64_t dim) { return x * dim; }
torch::Tensor lambda_impl(torch::Tensor x, int64_t dim) { return x * dim + 1; }
torch::Tensor several_one(torch::Tensor x) { return x + 100; }
torch::Tensor several_two(torch::Tensor x, int64_t dim) { return x + dim; }
torch::Tensor renamed_impl(torch::Tensor x, int64_t dim) { return x - dim; }
torch::Tensor one_half(torch::Tensor x) { return x / 2; }
torch::Tensor thrice_impl(int64_t dim, torch::Tensor x) { return x * 3 * dim; }
torch::Tensor inner_impl(torch::Tensor x) { return x + 7; }
torch::Tensor elsewhere_impl(torch::Tensor x) { return x + 9; }
torch::Tensor operated_impl(const torch::Tensor& x, int64_t dim) { return x * 10 * dim; }
torch::Tensor unexported(torch::Tensor x, int64_t dim) { return x * 1000 * dim; }
struct Holder {
  static torch::Tensor held(torch::Tensor x) { return x + 11; }
};

#include "exports.h"
