// Bodies as people and language models write them for torch's C++ extensions; shadow and real headers alike
// must compile them, and give the same results.
#include <torch/extension.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>

#include <cmath>
#include <vector>

// 1: raw pointers, a dispatch over element types, checks with messages.
torch::Tensor scale(torch::Tensor input, double factor) {
  TORCH_CHECK(input.dim() >= 1, "input must have a dimension, not ", input.dim(), " of ", input.sizes());
  auto x = input.contiguous();
  auto y = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::ScalarType::Half, at::ScalarType::BFloat16, x.scalar_type(), "scale", ([&] {
    const scalar_t* in = x.data_ptr<scalar_t>();
    scalar_t* out = y.data_ptr<scalar_t>();
    for (int64_t i = 0; i < x.numel(); ++i) out[i] = in[i] * static_cast<scalar_t>(factor);
  }));
  return y;
}

// 2: sizes, options and a reduction into an accumulator type.
torch::Tensor row_sum(const torch::Tensor& x) {
  const int64_t rows = x.size(0), columns = x.size(-1);
  auto options = torch::TensorOptions().dtype(x.dtype()).device(x.device());
  torch::Tensor out = torch::zeros({rows}, options);
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "row_sum", [&] {
    using acc_t = at::opmath_type<scalar_t>;
    const scalar_t* data = x.data_ptr<scalar_t>();
    for (int64_t i = 0; i < rows; ++i) {
      acc_t total = 0;
      for (int64_t j = 0; j < columns; ++j) total += static_cast<acc_t>(data[i * x.stride(0) + j * x.stride(1)]);
      out.data_ptr<scalar_t>()[i] = static_cast<scalar_t>(total);
    }
  });
  return out;
}

// 3: accessors, several results.
std::vector<torch::Tensor> split_signs(torch::Tensor x) {
  auto positive = torch::zeros_like(x), negative = torch::zeros(x.sizes(), x.options());
  auto in = x.accessor<float, 2>();
  auto up = positive.accessor<float, 2>();
  auto down = negative.accessor<float, 2>();
  for (int64_t i = 0; i < in.size(0); ++i) {
    for (int64_t j = 0; j < in.size(1); ++j) (in[i][j] > 0 ? up : down)[i][j] = in[i][j];
  }
  return {positive, negative};
}

// 4: optional tensors, numbers and flags with names and defaults.
torch::Tensor affine(torch::Tensor x, c10::optional<torch::Tensor> weight, const std::optional<at::Tensor>& bias,
                     int64_t times, bool negate) {
  torch::Tensor y = x.clone();
  for (int64_t i = 0; i < times; ++i) {
    if (weight.has_value() && weight->defined()) y = y * weight.value();
    if (bias.has_value()) y += *bias;
  }
  return negate ? -y : y;
}

// 5: views and reductions through torch's own operators.
torch::Tensor shapes(torch::Tensor x) {
  auto folded = x.view({x.size(0), -1}).t().transpose(0, 1).reshape({-1});
  auto wide = folded.unsqueeze(0).expand({2, folded.numel()}).permute({1, 0}).contiguous();
  return wide.squeeze().sum(1).add(folded.sum()) + x.mean(std::vector<int64_t>{0, 1}).sum(0, true);
}

// 6: operators and numbers on either side.
torch::Tensor arithmetic(torch::Tensor a, torch::Tensor b) {
  auto c = 2 * a + b / 4.0 - 1;
  c = 1.5 - c;
  c -= 0.25 * (1 / (b * b + 1));
  c *= (a > b).to(a.dtype());
  c[0] = 7;
  return torch::where(a == b, c, torch::relu(c).clamp_min(0.1)) + at::sigmoid(a).pow(2);
}

// 7: mutation in place, nothing returned.
void accumulate(torch::Tensor total, std::vector<torch::Tensor> parts, double weight) {
  for (const auto& part : parts) total.add_(part, weight);
  total.mul_(2).copy_(total.clone());
}

// 8: a tuple, element types and conversions.
std::tuple<torch::Tensor, torch::Tensor, double> statistics(torch::Tensor x) {
  auto wide = x.to(torch::kFloat64);
  auto mean = wide.mean();
  auto [values, indices] = wide.flatten().sort(0, /*descending=*/true);
  return std::make_tuple(values.to(torch::kFloat32), indices.toType(torch::kInt), mean.item<double>());
}

// 9: indexing.
torch::Tensor corner(torch::Tensor x, int64_t rows) {
  using namespace torch::indexing;
  auto part = x.index({Slice(None, rows), "...", Slice(0, None, 2)});
  x.index_put_({0, 0}, 100);
  return torch::cat({part, x.index({Slice(-1, None), Ellipsis, Slice(None, None, 2)})}, 0) + x.select(0, 0)[1][2];
}

// 10: a list of integers, new tensors of all sorts.
torch::Tensor fresh(at::IntArrayRef sizes, at::ScalarType type) {
  auto ones = torch::ones(sizes, type), filled = torch::full(sizes, 2.5, torch::dtype(type));
  auto line = torch::arange(0, ones.numel(), torch::TensorOptions().dtype(type)).view(sizes);
  return ones + filled * line + torch::eye(sizes[0], type).sum();
}

// 11: facts about a tensor.
std::string facts(torch::Tensor x) {
  std::string text = x.is_contiguous() ? "contiguous" : "strided";
  text += x.is_cuda() ? " cuda" : " host";
  text += x.is_floating_point() ? " floating" : " other";
  text += " " + std::to_string(x.dim()) + " " + std::to_string(x.element_size()) + " " + std::to_string(x.nbytes());
  text += " " + std::string(c10::toString(x.scalar_type())) + " " + x.device().str();
  text += " " + std::to_string(x.storage_offset()) + " " + std::to_string(x.device().type() == torch::kCPU);
  text += " " + std::to_string(x.dtype() == torch::kFloat32) + " " + std::to_string(x.requires_grad());
  return text;
}

// 12: threads of torch's own.
torch::Tensor squares(torch::Tensor x) {
  TORCH_CHECK(x.is_contiguous() && x.scalar_type() == torch::kFloat, "float32 only");
  auto y = torch::empty(x.sizes(), x.options());
  const float* in = x.const_data_ptr<float>();
  float* out = y.mutable_data_ptr<float>();
  at::parallel_for(0, x.numel(), 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = in[i] * in[i] + std::sqrt(std::abs(in[i]));
  });
  return y;
}

// 13: matrices.
at::Tensor gated(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& gate) {
  auto product = at::matmul(x, weight.t());
  auto out = at::empty({x.size(0), weight.size(0)}, x.options());
  at::mul_out(out, product, at::softmax(at::linear(x, gate), -1));
  return out.div(product.abs().max() + 1e-6);
}

// 14: every kind of error.
torch::Tensor fails(torch::Tensor x, const std::string& how) {
  if (how == "check") TORCH_CHECK(x.numel() == 0, "numel is ", x.numel(), ", ", 0.5, " of ", x.scalar_type());
  if (how == "plain") TORCH_CHECK(x.numel() == 0);
  if (how == "runtime") throw std::runtime_error("a runtime error");
  if (how == "value") throw std::invalid_argument("an invalid argument");
  if (how == "index") throw std::out_of_range("out of range");
  if (how == "type") x.data_ptr<double>();
  if (how == "operator") return torch::matmul(x, torch::ones({x.size(0) + 17, 2}));
  if (how == "dimension") return x.unsqueeze(x.size(5));
  if (how == "caught") {
    try {
      x.view({-1, 1000003});
    } catch (const c10::Error& error) {
      return x + 1;
    }
  }
  return x;
}

// 15: overloads.
int64_t kind(int64_t value) { return value; }
double kind_of_double(double value) { return value / 2; }
torch::Tensor itself(torch::Tensor& x) { return x; }
torch::Tensor undefined() { return torch::Tensor(); }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("scale", &scale, "x * factor");
  m.def("row_sum", &row_sum);
  m.def("split_signs", &split_signs);
  m.def("affine", &affine, py::arg("x"), py::arg("weight") = py::none(), py::arg("bias") = py::none(),
        py::arg("times") = 1, py::arg("negate") = false);
  m.def("shapes", &shapes);
  m.def("arithmetic", &arithmetic);
  m.def("accumulate", &accumulate, py::call_guard<py::gil_scoped_release>());
  m.def("statistics", &statistics);
  m.def("corner", &corner);
  m.def("fresh", &fresh);
  m.def("facts", &facts);
  m.def("squares", &squares);
  m.def("gated", &gated);
  m.def("fails", &fails);
  m.def("kind", &kind);
  m.def("kind", &kind_of_double);
  m.def("itself", &itself);
  m.def("undefined", &undefined);
  m.def("twice", [](torch::Tensor x) { return std::make_pair(x, x * 2); });
}
