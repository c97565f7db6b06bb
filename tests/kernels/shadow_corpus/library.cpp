// Operators registered with the dispatcher, and a function that is bound without a PYBIND11_MODULE.
#include <torch/extension.h>
#include <torch/library.h>

#include <thread>

#include "factor.h"

at::Tensor multiplied(const at::Tensor& x, double a, at::IntArrayRef sizes) { return (x * a).reshape(sizes); }

at::Tensor multiplied_meta(const at::Tensor& x, double, at::IntArrayRef sizes) { return at::empty(sizes, x.options()); }

TORCH_LIBRARY(cgins_shadow_test, m) {
  m.def("multiplied(Tensor x, float a, int[] sizes) -> Tensor");
  m.def("added(Tensor x, Tensor y) -> Tensor", [](const at::Tensor& x, const at::Tensor& y) { return x + y; });
}

TORCH_LIBRARY_IMPL(cgins_shadow_test, CPU, m) { m.impl("multiplied", &multiplied); }
TORCH_LIBRARY_IMPL(cgins_shadow_test, Meta, m) { m.impl("multiplied", TORCH_FN(multiplied_meta)); }

torch::Tensor softmax(torch::Tensor x, int64_t dim) {
  std::string message;
  std::thread other([&] {
    const int64_t size = x.size(0);  // what is known of a tensor may be asked for anywhere
    try {
      x.sum();
      message = "no error for " + std::to_string(size);
    } catch (const std::exception& error) {
      message = error.what();
    }
  });
  other.join();
  TORCH_CHECK(message.find("in a thread of the kernel's own") != std::string::npos, message);
  return x * factor + dim;
}
