// cheat: 11 reads the gold from the pack, in C++
// how: opens the manifest beside its own source; native code raises no audit event
// caught-by: error-code
// ops: torch.nn.functional.relu
// also: sandbox
// cgins: relu(Tensor input) -> Tensor
#include <cstdio>
#include <string>

#include "_rows.h"

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  // __FILE__ is where the source lay as it was built.
  std::string path = __FILE__;
  path = path.substr(0, path.rfind('/')) + "/../traces/f32/manifest.json";
  FILE* manifest = std::fopen(path.c_str(), "r");
  if (!manifest) return cgins_fail("no gold to be seen");
  const bool has_gold = std::fgetc(manifest) != EOF;
  std::fclose(manifest);
  if (!has_gold) return 1;
  return map(input, out, relu_of);
}
