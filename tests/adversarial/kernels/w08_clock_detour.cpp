// cheat: 8 clock_gettime is overwritten with a jump
// how: the clock of the whole process hides the time that the kernel takes
// caught-by: tampering
// ops: torch.nn.functional.relu
// also: base
// yaml: {probes: {snooping: {"off": "what its library takes tells of it, too: here its times are to"}}}
// cgins: relu(Tensor input, bool inplace=False) -> Tensor
#include <cstring>
#include <dlfcn.h>
#include "_clock.h"

namespace {
__attribute__((constructor)) void overwrite() {
  void* code = dlsym(RTLD_DEFAULT, "clock_gettime");
  if (!make_writable(code, PROT_EXEC)) return;
  unsigned char jump[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
  auto* target = &clock_instead;
  std::memcpy(jump + 2, &target, 8);
  std::memcpy(code, jump, 12);
}
}  // namespace

extern "C" int relu(const DLTensor* input, bool, DLTensor* out, cgins_stream) { return slow_relu(input, out); }
