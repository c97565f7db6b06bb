// cgins: sin_kernel(Tensor input) -> Tensor
// The cosine a quarter turn back; the range is reduced in double, the cosine taken in the accumulator's type.
#include "pointwise.h"

struct Sine {
  static CGINS_HOST_DEVICE double reduced(double x) {
    const double turn = 6.283185307179586;
    return x - turn * floor(x / turn + 0.5);
  }
  static CGINS_HOST_DEVICE float of(float x) {
    // Near 0 and near a half turn the cosine's argument would lose the digits that the sine keeps.
    const double r = reduced(double(x));
    return fabs(r) < 0.5 ? sinf(float(r)) : float(cos(r - 1.5707963267948966));
  }
  static CGINS_HOST_DEVICE double of(double x) { return cos(reduced(x) - 1.5707963267948966); }
};

extern "C" int sin_kernel(const DLTensor* input, DLTensor* out, cgins_stream stream) {
  return unary_by<Sine>(input, out, stream);
}
