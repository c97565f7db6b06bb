#pragma once
#include <ATen/core/Tensor.h>
namespace torch::autograd {
inline at::Tensor cgins_make_variable(at::Tensor data, bool requires_grad) {
  if (!data.defined()) return at::Tensor();
  c10::intrusive_ptr<at::TensorImpl> impl;
  if (data.use_count() == 1 && data.getIntrusivePtr()->unique_version()) {
    impl = data.unsafeReleaseIntrusivePtr();
    impl->set_allow_tensor_metadata_change(true);
  } else {
    impl = data.getIntrusivePtr()->shallow_copy_and_detach(/*version_counter=*/0, true);
  }
  impl->set_autograd_meta(nullptr);
  at::Tensor variable(std::move(impl));
  if (requires_grad) variable.set_requires_grad(true);
  return variable;
}
}
