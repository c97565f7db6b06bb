// honest: a pool of threads that is kept alive between calls, beside a base without one
// ops: torch.nn.functional.relu
// also: base
// cgins: relu(Tensor input, bool inplace=False) -> Tensor
#include <condition_variable>
#include <mutex>
#include <thread>
#include <cgins.h>

namespace {
struct Pool {
  std::mutex mutex;
  std::condition_variable wake, done;
  const float* x = nullptr;
  float* y = nullptr;
  int64_t begin = 0, end = 0;
  bool wanted = false;

  Pool() { std::thread([this] { serve(); }).detach(); }

  void serve() {
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      wake.wait(lock, [this] { return wanted; });
      for (int64_t i = begin; i < end; ++i) y[i] = x[i] < 0 ? 0 : x[i];
      wanted = false;
      done.notify_one();
    }
  }
};
}  // namespace

extern "C" int relu(const DLTensor* input, bool, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::is_contiguous(input), "contiguous tensors only");
  static Pool& pool = *new Pool;
  const float* x = cgins::data<float>(input);
  float* y = cgins::data<float>(out);
  const int64_t n = cgins::numel(input);
  std::unique_lock<std::mutex> lock(pool.mutex);
  pool.x = x;
  pool.y = y;
  pool.begin = n / 2;
  pool.end = n;
  pool.wanted = true;
  pool.wake.notify_one();
  pool.done.wait(lock, [] { return !pool.wanted; });
  for (int64_t i = 0; i < n / 2; ++i) y[i] = x[i] < 0 ? 0 : x[i];
  return 0;
}
