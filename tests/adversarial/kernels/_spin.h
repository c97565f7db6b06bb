// Threads for kernels that slow their rival, and an honest relu.
#include <atomic>
#include <thread>
#include <unistd.h>
#include <cgins.h>

namespace {
std::atomic<int> in_call{0};

[[maybe_unused]] void start(int threads, void (*run)()) {
  for (int i = 0; i < threads; ++i) std::thread(run).detach();
}

int honest_relu(const DLTensor* input, DLTensor* out) {
  CGINS_CHECK(cgins::is_contiguous(input), "contiguous tensors only");
  const float* x = cgins::data<float>(input);
  float* y = cgins::data<float>(out);
  const int64_t n = cgins::numel(input);
  for (int64_t i = 0; i < n; ++i) {
    y[i] = x[i] < 0 ? 0 : x[i];
  }
  return 0;
}
}  // namespace
