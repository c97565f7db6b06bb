// cheat: 17 a real race
// how: threads add to one sum without a lock, in an order that differs from call to call
// caught-by: not-repeatable, gold-mismatch, reference-mismatch
// ops: torch.sum
// cgins: sum(Tensor input, int[] dim, bool keepdim=False) -> Tensor
#include <thread>

#include "_rows.h"

extern "C" int sum(const DLTensor* input, const int64_t*, int64_t, bool, DLTensor* out, cgins_stream) {
  const int64_t width = cgins::size(input, -1), rows = cgins::numel(out);
  volatile float* sums = cgins::data<float>(out);
  for (int64_t row = 0; row < rows; ++row) sums[row] = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([=] {
      for (int64_t i = t; i < width; i += 4)
        for (int64_t row = 0; row < rows; ++row) {
          const float before = sums[row];
          std::this_thread::yield();  // also two cores are to lose an update
          sums[row] = before + at<float>(input, row * width + i);
        }
    });
  for (std::thread& thread : threads) thread.join();
  return 0;
}
