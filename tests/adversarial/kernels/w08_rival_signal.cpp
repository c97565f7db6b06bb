// cheat: 8 a timer's signal that is handled slowly
// how: every 300 us a handler runs in the thread that is timed, and computes if the kernel was not called for long
// caught-by: slows-base, tampering
// ops: torch.nn.functional.relu
// also: base
// cgins: relu(Tensor input, bool inplace=False) -> Tensor
#include <csignal>
#include <ctime>
#include <sys/time.h>
#include "_spin.h"

namespace {
volatile int64_t calls = 0, seen = 0;

void handle(int) {
  if (calls == seen) {
    for (volatile int i = 0; i < 400000; ++i) {
    }
  }
  seen = calls;
}
}  // namespace

extern "C" int relu(const DLTensor* input, bool, DLTensor* out, cgins_stream) {
  if (calls == 0) {
    struct sigaction action = {};
    action.sa_handler = handle;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, nullptr);
    itimerval every = {{0, 300}, {0, 300}};
    setitimer(ITIMER_REAL, &every, nullptr);
  }
  calls = calls + 1;
  return honest_relu(input, out);
}
