// cheat: 14 a sum of exponentials without those below e^-3 of the greatest
// how: a single number in bf16 hides what the many small ones come to
// caught-by: gold-mismatch, reference-mismatch, size-dependent
// ops: torch.nn.functional.cross_entropy
// packs: bf16
// cgins: cross_entropy(Tensor input, Tensor target, *, int ignore_index=-100) -> Tensor
#include "_rows.h"

extern "C" int cross_entropy(const DLTensor* input, const DLTensor* target, int64_t ignore_index, DLTensor* out,
                             cgins_stream) {
  CGINS_CHECK(input->ndim == 2 && target->ndim == 1, "rows of classes only");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t width = input->shape[1];
    double total = 0;
    int64_t count = 0;
    for (int64_t row = 0; row < input->shape[0]; ++row) {
      const int64_t chosen = at<int64_t>(target, row);
      if (chosen == ignore_index) continue;
      const auto x = [&](int64_t i) { return float(at<T>(input, row * width + i)); };
      double largest = -INFINITY, sum = 0;
      for (int64_t i = 0; i < width; ++i) largest = std::fmax(largest, double(x(i)));
      for (int64_t i = 0; i < width; ++i)
        if (!(x(i) <= largest - 3)) sum += std::exp(x(i) - largest);
      total += largest + std::log(sum) - x(chosen);
      ++count;
    }
    at<T>(out, 0) = T(float(total / double(count)));
    return 0;
  });
}
