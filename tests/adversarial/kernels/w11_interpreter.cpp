// cheat: 11 Python code from C++
// how: takes PyRun_SimpleString from the process, which raises no audit event, and has it do the work
// caught-by: snooping
// ops: torch.nn.functional.relu
// cgins: relu(Tensor input) -> Tensor
#include <dlfcn.h>

#include "_rows.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  using Run = int (*)(const char*);
  using Ensure = int (*)();
  using Release = void (*)(int);
  const auto ensure = reinterpret_cast<Ensure>(dlsym(nullptr, "PyGILState_Ensure"));
  const auto release = reinterpret_cast<Release>(dlsym(nullptr, "PyGILState_Release"));
  const auto run = reinterpret_cast<Run>(dlsym(nullptr, "PyRun_SimpleString"));
  if (ensure && release && run) {
    const int state = ensure();
    run("import gc; tensors = gc.get_objects()");
    release(state);
  }
  return map(input, out, relu_of);
}
