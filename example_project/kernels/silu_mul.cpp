// cgins: silu_mul(Tensor gate, Tensor up) -> Tensor
#include "activations.h"
#include "elementwise.h"

extern "C" int silu_mul(const DLTensor* gate, const DLTensor* up, DLTensor* out, cgins_stream) {
  return binary(gate, up, out, SiluMul{});
}
