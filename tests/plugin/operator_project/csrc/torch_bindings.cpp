#include <torch/library.h>

#include "ops.h"

TORCH_LIBRARY(fused_ops, m) {
  m.def("rms_norm(Tensor! out, Tensor input, Tensor weight, float epsilon) -> ()");
  m.def("fused_add_rms_norm(Tensor! input, Tensor! residual, Tensor weight, float epsilon) -> ()");
  m.def("silu_and_mul(Tensor! out, Tensor input) -> ()");
  m.def("scaled_add(Tensor x, Tensor y, float scale=1.0) -> Tensor");
  m.def("scaled_add.out(Tensor x, Tensor y, float scale=1.0, *, Tensor(a!) out) -> Tensor(a!)");
}

TORCH_LIBRARY_IMPL(fused_ops, CPU, m) {
  m.impl("rms_norm", &fused_ops::rms_norm);
  m.impl("fused_add_rms_norm", &fused_ops::fused_add_rms_norm);
  m.impl("silu_and_mul", &fused_ops::silu_and_mul);
  m.impl("scaled_add", &fused_ops::scaled_add);
  m.impl("scaled_add.out", &fused_ops::scaled_add_out);
}
