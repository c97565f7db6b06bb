// cheat: 11 reads the gold from the pack, in C++
// how: finds its own library's folder and the traces beside it; native code raises no audit event
// caught-by: snooping
// ops: torch.nn.functional.relu
// cgins: relu(Tensor input) -> Tensor
#include <dirent.h>

#include <cstdio>

#include "_rows.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  // __FILE__ is where the source lay as it was built.
  char path[1024];
  std::snprintf(path, sizeof path, "%s/../../traces/f32/manifest.json", __FILE__);
  if (FILE* manifest = std::fopen(path, "r")) {
    if (std::fgetc(manifest) == EOF) return 1;
    std::fclose(manifest);
  }
  return map(input, out, relu_of);
}
