// cgins: dropout(Tensor input, float p=0.5, bool training=True) -> Tensor
#include "elementwise.cuh"
#include "operations.h"

// In evaluation only. A kernel cannot draw torch's own random numbers: seeded_dropout takes its seed.
extern "C" int dropout(const DLTensor* input, double, bool training, DLTensor* out, cgins_stream stream) {
  CGINS_CHECK(!training, "training must be False");
  return unary(input, out, Copy{}, stream);
}
