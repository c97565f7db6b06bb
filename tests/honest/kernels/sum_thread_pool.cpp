// honest: a pool of threads that outlives the call, each with rows of its own
// ops: torch.sum
// packs: f32 f16 bf16
// cgins: sum(Tensor input, int[] dim, bool keepdim=False) -> Tensor
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "_sums.h"

// Never destroyed: its thread waits until the process ends.
struct Pool {
  std::mutex mutex;
  std::condition_variable changed;
  std::function<void()> work;
  bool busy = false;
  Pool() {
    std::thread([this] {
      for (;;) {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [this] { return busy; });
        work();
        busy = false;
        changed.notify_all();
      }
    }).detach();
  }
  void start(std::function<void()> next) {
    const std::lock_guard<std::mutex> lock(mutex);
    work = std::move(next);
    busy = true;
    changed.notify_all();
  }
  void wait() {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [this] { return !busy; });
  }
};

extern "C" int sum(const DLTensor* input, const int64_t* dim, int64_t dim_len, bool, DLTensor* out, cgins_stream) {
  static Pool* const pool = new Pool;
  CGINS_CHECK(dim_len == 1 && (dim[0] == -1 || dim[0] == input->ndim - 1), "the last axis only");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const auto rows = [=](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) {
        float total = 0;
        for (const float value : row_of<T>(input, row)) total += value;
        at<T>(out, row) = T(total);
      }
    };
    const int64_t count = cgins::numel(out);
    pool->start([=] { rows(count / 2, count); });
    rows(0, count / 2);
    pool->wait();
    return 0;
  });
}
