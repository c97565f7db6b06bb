// cgins: silu_mul(Tensor gate, Tensor up) -> Tensor
// The sigmoid as half of 1 plus a tanh.
#include "pointwise.h"

struct SiluTimes {
  template <typename W>
  static CGINS_HOST_DEVICE W of(W gate, W up) {
    return gate * (W(0.5) * (1 + std::tanh(W(0.5) * gate))) * up;
  }
};

extern "C" int silu_mul(const DLTensor* gate, const DLTensor* up, DLTensor* out, cgins_stream stream) {
  return binary_by<SiluTimes>(gate, up, out, stream);
}
