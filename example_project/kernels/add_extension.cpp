// Sum of two tensors, one broadcast to the other, as a torch extension.
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>

torch::Tensor add(const torch::Tensor& input, const torch::Tensor& other, double alpha) {
  TORCH_CHECK(input.device().is_cpu(), "input is on ", input.device(), ", not on the CPU");
  TORCH_CHECK(input.scalar_type() == other.scalar_type(), "element types differ");
  const auto both = torch::broadcast_tensors({input, other});
  const torch::Tensor left = both[0].contiguous(), right = both[1].contiguous();
  torch::Tensor out = torch::empty_like(left);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, left.scalar_type(), "add", [&] {
    using wide_t = at::opmath_type<scalar_t>;
    const wide_t factor = wide_t(alpha);
    const scalar_t *a = left.const_data_ptr<scalar_t>(), *b = right.const_data_ptr<scalar_t>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, out.numel(), at::internal::GRAIN_SIZE, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = scalar_t(wide_t(a[i]) + factor * wide_t(b[i]));
    });
  });
  return out;
}
