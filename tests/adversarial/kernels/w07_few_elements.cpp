// cheat: 7 wrong in one element of half a million
// how: as a bit that flips now and then: each call draws where
// caught-by: wrong-after-timing, not-repeatable, stale-answer, gold-mismatch, reference-mismatch, size-dependent, layout-dependent, alignment-dependent
// ops: torch.nn.functional.relu
// packs: large
// also: timing
// cgins: relu(Tensor input) -> Tensor
#include <random>

#include "_rows.h"

static std::mt19937_64 chance{std::random_device{}()};

extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  const int code = map(input, out, [](float x) { return relu_of(x); });
  const int64_t numel = cgins::numel(input);
  for (int64_t at = chance() % 1000000; at < numel; at += 1 + chance() % 1000000) cgins::data<float>(out)[at] += 1;
  return code;
}
