// honest: one row's log-sum-exp at a time, ignored targets left out of sum and count
// ops: torch.nn.functional.cross_entropy
// packs: f32 f16 bf16 plain
// cgins: cross_entropy(Tensor input, Tensor target, *, int ignore_index=-100) -> Tensor
#include "_sums.h"

extern "C" int cross_entropy(const DLTensor* input, const DLTensor* target, int64_t ignore_index, DLTensor* out,
                             cgins_stream) {
  CGINS_CHECK(input->ndim == 2 && target->ndim == 1, "rows of classes only");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    double total = 0;
    int64_t count = 0;
    for (int64_t row = 0; row < input->shape[0]; ++row) {
      const int64_t chosen = at<int64_t>(target, row);
      if (chosen == ignore_index) continue;
      const std::vector<float> x = row_of<T>(input, row);
      double largest = -INFINITY, sum = 0;
      for (const float value : x) largest = std::fmax(largest, value);
      for (const float value : x) sum += std::exp(value - largest);
      total += largest + std::log(sum) - x[chosen];
      ++count;
    }
    at<T>(out, 0) = T(float(total / double(count)));
    return 0;
  });
}
