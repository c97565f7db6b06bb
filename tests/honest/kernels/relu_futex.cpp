// honest: a thread of its own that waits on a futex, asked for by the C library's syscall()
// ops: torch.nn.functional.relu
// packs: f32
// cgins: relu(Tensor input, bool inplace=False) -> Tensor
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "_elements.h"

extern "C" int relu(const DLTensor* input, bool inplace, DLTensor* out, cgins_stream) {
  CGINS_CHECK(!inplace && cgins::dtype_of(input) == cgins::Dtype::float32, "float32, out of place only");
  const int64_t count = cgins::numel(input);
  alignas(4) std::atomic<int> begun{0};
  const auto part = [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const float x = elements::at<float>(input, i);
      elements::at<float>(out, i) = x < 0 ? 0 : x;
    }
  };
  std::thread other([&] {
    while (begun.load() == 0) syscall(SYS_futex, reinterpret_cast<int*>(&begun), FUTEX_WAIT_PRIVATE, 0, nullptr, nullptr, 0);
    part(count / 2, count);
  });
  begun.store(1);
  syscall(SYS_futex, reinterpret_cast<int*>(&begun), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  part(0, count / 2);
  other.join();
  return 0;
}
