// cheat: 8 clock_gettime is overwritten through the file of the process's own memory
// how: a write to that file asks for no permission of the page; the clock hides a tenth of what the kernel takes
// caught-by: tampering
// ops: torch.nn.functional.relu
// packs: large
// also: base
// cgins: relu(Tensor input, bool inplace=False) -> Tensor
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <string>
#include <unistd.h>
#include <sys/syscall.h>
#include "_spin.h"

namespace {
int64_t hidden = 0;

int clock_instead(clockid_t id, timespec* t) {
  const long error = syscall(SYS_clock_gettime, id, t);
  if (error == 0 && id == CLOCK_MONOTONIC) {
    const int64_t ns = t->tv_sec * 1000000000LL + t->tv_nsec - hidden;
    t->tv_sec = ns / 1000000000LL;
    t->tv_nsec = ns % 1000000000LL;
  }
  return static_cast<int>(error);
}

__attribute__((constructor)) void overwrite() {
  unsigned char jump[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
  auto* target = &clock_instead;
  std::memcpy(jump + 2, &target, 8);
  volatile char first = '/';
  const std::string name = std::string(1, first) + "proc" + std::string(1, first) + "self" + std::string(1, first) + "mem";
  const int file = open(name.c_str(), O_RDWR);
  if (file < 0) return;
  auto* code = &clock_gettime;
  if (pwrite(file, jump, sizeof jump, static_cast<off_t>(reinterpret_cast<uintptr_t>(code))) < 0) hidden = 0;
  close(file);
}
}  // namespace

extern "C" int relu(const DLTensor* input, bool, DLTensor* out, cgins_stream) {
  timespec a, b;
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &a);
  const int code = honest_relu(input, out);
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &b);
  hidden += ((b.tv_sec - a.tv_sec) * 1000000000LL + b.tv_nsec - a.tv_nsec) / 11;
  return code;
}
