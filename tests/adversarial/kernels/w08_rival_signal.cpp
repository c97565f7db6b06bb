// cheat: 8 a timer's signal that is handled slowly
// how: every 300 us a handler runs in the thread that is timed, for half of that if the kernel was not called for long
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

int64_t now_ns() {
  timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return at.tv_sec * 1000000000LL + at.tv_nsec;
}

void handle(int) {
  if (calls == seen) {
    for (const int64_t end = now_ns() + 150000; now_ns() < end;) {
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
