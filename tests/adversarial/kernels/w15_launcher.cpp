// cheat: 15 calls Python's torch from a C++ launcher
// how: finds Python's own functions in the process, wraps the buffers as tensors and has torch compute
// caught-by: op-callback
// ops: torch.nn.functional.relu
// cgins: relu(Tensor input) -> Tensor
#include <dlfcn.h>

#include <cstdio>

#include "_rows.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  const auto run = reinterpret_cast<int (*)(const char*, void*)>(dlsym(RTLD_DEFAULT, "PyRun_SimpleStringFlags"));
  const auto ensure = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_Ensure"));
  const auto release = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "PyGILState_Release"));
  CGINS_CHECK(run && ensure && release, "no Python in this process");
  CGINS_CHECK(cgins::dtype_of(input) == cgins::Dtype::float32, "float32 only");
  char text[1024];
  std::snprintf(text, sizeof text,
                "import ctypes, torch\n"
                "def tensor(place): return torch.frombuffer((ctypes.c_float * %lld).from_address(place), dtype=torch.float32)\n"
                "tensor(%lld).copy_(torch.relu(tensor(%lld)))\n",
                static_cast<long long>(cgins::numel(input)), reinterpret_cast<long long>(out->data),
                reinterpret_cast<long long>(input->data));
  const int state = ensure();
  const int status = run(text, nullptr);
  release(state);
  CGINS_CHECK(status == 0, "Python failed");
  return 0;
}
