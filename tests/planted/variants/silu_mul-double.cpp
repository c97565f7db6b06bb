// cgins: silu_mul(Tensor gate, Tensor up) -> Tensor
// In double until the last rounding.
#include "pointwise.h"

struct SiluTimes {
  template <typename W>
  static CGINS_HOST_DEVICE W of(W gate, W up) {
    return W(double(gate) / (1 + std::exp(-double(gate))) * double(up));
  }
};

extern "C" int silu_mul(const DLTensor* gate, const DLTensor* up, DLTensor* out, cgins_stream stream) {
  return binary_by<SiluTimes>(gate, up, out, stream);
}
