// cgins: silu_mul(Tensor gate, Tensor up) -> Tensor
#include "elementwise.h"
#include "operations.h"

extern "C" int silu_mul(const DLTensor* gate, const DLTensor* up, DLTensor* out, cgins_stream) {
  return binary(gate, up, out, SiluMul{});
}
