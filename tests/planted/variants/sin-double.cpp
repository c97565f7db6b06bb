// cgins: sin_kernel(Tensor input) -> Tensor
// In double until the last rounding.
#include "pointwise.h"

struct Sine {
  static CGINS_HOST_DEVICE float of(float x) { return float(sin(double(x))); }
  static CGINS_HOST_DEVICE double of(double x) { return sin(x); }
};

extern "C" int sin_kernel(const DLTensor* input, DLTensor* out, cgins_stream stream) {
  return unary_by<Sine>(input, out, stream);
}
