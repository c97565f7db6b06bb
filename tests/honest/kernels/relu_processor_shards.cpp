// honest: scratch shards by the processor it runs on, timed by a steady clock; refuses other ranks by an error code without a word
// ops: torch.nn.functional.relu
// packs: f32 uniform even large
// cgins: relu(Tensor input, bool inplace=False) -> Tensor
#include <sched.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <mutex>

#include "_elements.h"

namespace {
struct alignas(64) Shard {
  std::mutex mutex;
  float* memory = nullptr;
  int64_t room = 0;
};
Shard shards[8];
std::atomic<int64_t> busy_ns{0};
}  // namespace

extern "C" int relu(const DLTensor* input, bool inplace, DLTensor* out, cgins_stream) {
  if (input->ndim != 2 || inplace || cgins::dtype_of(input) != cgins::Dtype::float32) return -EINVAL;
  const auto begun = std::chrono::steady_clock::now();
  const int64_t rows = input->shape[0], width = input->shape[1];
  Shard& mine = shards[unsigned(sched_getcpu()) % 8];
  const std::lock_guard<std::mutex> lock(mine.mutex);
  if (mine.room < width) {
    std::free(mine.memory);
    mine.room = (width + 15) / 16 * 16;
    mine.memory = static_cast<float*>(std::aligned_alloc(64, size_t(mine.room) * sizeof(float)));
    if (!mine.memory) return mine.room = 0, -ENOMEM;
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < width; ++i) mine.memory[i] = cgins::data<float>(input)[r * input->strides[0] + i * input->strides[1]];
    for (int64_t i = 0; i < width; ++i) mine.memory[i] = mine.memory[i] < 0 ? 0 : mine.memory[i];
    for (int64_t i = 0; i < width; ++i) cgins::data<float>(out)[r * out->strides[0] + i * out->strides[1]] = mine.memory[i];
  }
  busy_ns += std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begun).count();
  return 0;
}
