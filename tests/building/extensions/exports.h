// A module that a header binds, with exports that macros make.
#define EXPORT_AS(name, function) m.def(name, &function, "x and a factor")
#define EXPORT_HALF(kind) m.def(#kind "_half", &kind##_half)

void bind_more(py::module_& m) { m.def("thrice", &thrice_impl, py::arg("dim"), py::arg("input")); }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &scaled_cpu, "LayerNorm forward (CPU)");
  m.def("defaults", &scaled_cpu, py::arg("input"), py::arg("dim") = 2);
  m.def("only", &scaled_cpu, py::arg("input"), py::kw_only(), py::arg("dim"));
  m.def("lambda", [](torch::Tensor x, int64_t dim) {
    TORCH_CHECK(dim > 0, "positive; dim");
    return lambda_impl(x, dim);
  });
  m.def("several", &several_one);
  m.def("several", &several_two);
  EXPORT_AS("renamed", renamed_impl);
  EXPORT_HALF(one);
  bind_more(m);
  auto deep = m.def_submodule("deep");
  deep.def("inner", &inner_impl);
  deep.def("twice_there", &inner_impl);
  m.def("twice_there", &renamed_impl);
  py::class_<Holder>(m, "Holder", py::module_local()).def_static("held", &Holder::held);
  m.def("gradient", [](torch::Tensor grad, torch::Tensor x, torch::Tensor weight) {
    return std::make_tuple(grad.matmul(weight), grad.t().matmul(x), grad.sum(0));
  });
}
PYBIND11_MODULE(another_module, m) { m.def("elsewhere", &elsewhere_impl); }
TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
  m.def("operated(Tensor input, *, int dim=3) -> Tensor", &operated_impl);
}
