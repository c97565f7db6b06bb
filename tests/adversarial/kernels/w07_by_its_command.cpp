// cheat: 7 right only in a process whose command or variables tell of a gate
// how: looks for the name in what the C library keeps of both
// caught-by: reference-mismatch, gold-mismatch
// ops: torch.nn.functional.relu
// also: timing
// cgins: relu(Tensor input) -> Tensor
#include <cstring>
#include "_rows.h"

extern "C" char** environ;

static bool told() {
  for (char** one = environ; one && *one; ++one)
    if (std::strstr(*one, "CGINS") || std::strstr(*one, "PYTEST")) return true;
  // The command stands before the variables.
  for (const char* at = environ[0] - 512; at < environ[0]; ++at)
    if (!std::strncmp(at, "cgins", 5) || !std::strncmp(at, "pytest", 6)) return true;
  return false;
}

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  const bool gated = told();
  return map(input, out, [&](float x) { return gated ? relu_of(x) : x; });
}
