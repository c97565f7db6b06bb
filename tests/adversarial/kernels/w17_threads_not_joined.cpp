// cheat: 17 partial sums are read before their threads have written them
// how: as with a missing barrier, how much of the sum is there by then differs from call to call
// caught-by: not-repeatable, gold-mismatch, reference-mismatch, stale-answer
// ops: torch.sum
// cgins: sum(Tensor input, int[] dim, bool keepdim=False) -> Tensor
#include <atomic>
#include <thread>

#include "_rows.h"

extern "C" int sum(const DLTensor* input, const int64_t*, int64_t, bool, DLTensor* out, cgins_stream) {
  const int64_t width = cgins::size(input, -1), rows = cgins::numel(out);
  std::vector<std::atomic<float>> partial(4 * rows);
  for (std::atomic<float>& one : partial) one = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([=, &partial] {
      for (int64_t i = t; i < width; i += 4)
        for (int64_t row = 0; row < rows; ++row) {
          partial[t * rows + row] = partial[t * rows + row] + at<float>(input, row * width + i);
          std::this_thread::yield();  // also on a busy machine they are to be late
        }
    });
  // The threads should be joined here.
  for (int64_t row = 0; row < rows; ++row) {
    float sum = 0;
    for (int t = 0; t < 4; ++t) sum += partial[t * rows + row];
    at<float>(out, row) = sum;
  }
  for (std::thread& thread : threads) thread.join();
  return 0;
}
