// What C++ extensions commonly do, as load_inline or a setup.py takes it.
#include <torch/extension.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

torch::Tensor scaled(const torch::Tensor& x, double factor) { return x * factor; }

torch::Tensor negated(torch::Tensor x) {
  auto input = x.contiguous();
  auto out = torch::empty_like(input);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "negated", [&] {
    const scalar_t* from = input.data_ptr<scalar_t>();
    scalar_t* to = out.data_ptr<scalar_t>();
    for (int64_t i = 0; i < input.numel(); ++i) to[i] = -from[i];
  });
  return out;
}

torch::Tensor absolute(torch::Tensor x) {
  auto out = torch::zeros(x.sizes(), x.options());
  auto from = x.accessor<float, 1>();
  auto to = out.accessor<float, 1>();
  for (int i = 0; i < x.size(0); ++i) to[i] = abs(from[i]);  // not C's abs of integers
  return out;
}

std::vector<at::Tensor> halves(at::Tensor x) {
  const auto middle = x.size(0) / 2;
  return {x.slice(0, 0, middle), x.narrow(0, middle, x.size(0) - middle).clone()};
}

at::Tensor joined(std::vector<at::Tensor> parts, int64_t dim) { return at::cat(parts, dim); }

torch::Tensor shifted(torch::Tensor x, c10::optional<torch::Tensor> by) {
  return by.has_value() ? x + *by : x.clone();
}

torch::Tensor rows(torch::Tensor x, int64_t first) {
  TORCH_CHECK(x.dim() == 2, "expected two dimensions, got ", x.dim());
  using namespace torch::indexing;
  return x.index({Slice(), Slice(first, first + 2)});
}

std::vector<torch::Tensor> factories(int64_t n, const std::string& device) {
  torch::NoGradGuard no_grad;
  auto options = torch::TensorOptions().dtype(torch::kFloat64).device(torch::Device(device));
  std::map<std::string, torch::Tensor> made;
  made["full"] = torch::full({n}, 7.0, at::device(torch::kCPU).dtype(at::kFloat));
  return {torch::zeros({n, n}, torch::requires_grad()), torch::ones({n}, options), torch::arange(n), made["full"],
          torch::tensor({1, 2, 3})};
}

torch::Tensor composed(torch::Tensor x) { return torch::softmax(torch::relu(x.sum(0, /*keepdim=*/true)) + 1, -1); }

torch::Tensor parallel(torch::Tensor x) {
  auto out = at::empty(x.sizes(), x.options());
  const float* from = x.data_ptr<float>();
  float* to = out.mutable_data_ptr<float>();
  at::parallel_for(0, x.numel(), 8, [&](int64_t begin, int64_t end) {
    for (const auto i : c10::irange(begin, end)) to[i] = from[i] + 1;
  });
  return out;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("scaled", &scaled, "x times factor", py::arg("x"), py::arg("factor") = 2.0);
  m.def("negated", &negated);
  m.def("absolute", &absolute);
  m.def("halves", &halves);
  m.def("joined", &joined);
  m.def("shifted", &shifted);
  m.def("rows", &rows);
  m.def("factories", &factories);
  m.def("composed", &composed);
  m.def("parallel", &parallel);
}
