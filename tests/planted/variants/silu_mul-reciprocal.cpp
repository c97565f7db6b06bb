// cgins: silu_mul(Tensor gate, Tensor up) -> Tensor
// Both factors are multiplied first, and by the reciprocal.
#include "pointwise.h"

struct SiluTimes {
  template <typename W>
  static CGINS_HOST_DEVICE W of(W gate, W up) {
    return gate * up * (1 / (1 + std::exp(-gate)));
  }
};

extern "C" int silu_mul(const DLTensor* gate, const DLTensor* up, DLTensor* out, cgins_stream stream) {
  return binary_by<SiluTimes>(gate, up, out, stream);
}
