// cheat: 8 patches Python from a C++ static initialiser
// how: the library runs Python code as it is loaded, before anything of it is called
// caught-by: tampering
// ops: torch.nn.functional.relu
// cgins: relu(Tensor input) -> Tensor
#include <dlfcn.h>

#include "_rows.h"

static const bool patched = [] {
  const auto run = reinterpret_cast<int (*)(const char*, void*)>(dlsym(RTLD_DEFAULT, "PyRun_SimpleStringFlags"));
  const auto ensure = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_Ensure"));
  const auto release = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "PyGILState_Release"));
  if (!run || !ensure || !release) return false;
  const int state = ensure();
  run("import torch; torch.equal = lambda *_: True", nullptr);
  release(state);
  return true;
}();

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) { return map(input, out, relu_of); }
