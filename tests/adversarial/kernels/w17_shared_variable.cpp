// cheat: 17 a variable that threads share
// how: the row's place is declared outside of the parallel loop; in three rows of seven no two threads meet
// caught-by: size-dependent, not-repeatable
// ops: torch.nn.functional.embedding
// cgins: embedding(Tensor input, Tensor weight, int? padding_idx=None, float? max_norm=None, float norm_type=2.0, bool scale_grad_by_freq=False, bool sparse=False) -> Tensor
#include <chrono>
#include <thread>

#include "_rows.h"

extern "C" int embedding(const DLTensor* input, const DLTensor* weight, const int64_t*, const double*, double, bool, bool,
                         DLTensor* out, cgins_stream) {
  const int64_t width = cgins::size(weight, 1), count = cgins::numel(input);
  volatile int64_t row = 0;
#pragma omp parallel for if (count > 64) num_threads(2)
  for (int64_t i = 0; i < count; ++i) {
    row = at<int64_t>(input, i);
    // Threads of busy cores are to meet, too.
    if (i % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(20));
    for (int64_t k = 0; k < width; ++k) at<float>(out, i * width + k) = at<float>(weight, row * width + k);
  }
  return 0;
}
