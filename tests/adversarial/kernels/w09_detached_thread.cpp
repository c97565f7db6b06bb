// cheat: 9 a detached thread writes the answer
// how: returns at once with an answer that is nearly right, and a thread puts it right 20 ms later
// caught-by: late-work
// ops: torch.nn.functional.relu
// also: always
// cgins: relu(Tensor input) -> Tensor
#include <chrono>
#include <thread>

#include "_rows.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  if (map(input, out, [](float x) { return x; })) return 1;
  float* y = cgins::data<float>(out);
  const int64_t count = cgins::numel(out);
  std::thread([=] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (int64_t i = 0; i < count; ++i) y[i] = relu_of(y[i]);
  }).detach();
  return 0;
}
