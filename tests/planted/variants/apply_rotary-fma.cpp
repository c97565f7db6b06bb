// cgins: apply_rotary(Tensor query, Tensor key, Tensor cos, Tensor sin)
//     -> (Tensor rotated_query, Tensor rotated_key)
// Products are not rounded before they are added.
#include "turns.h"

struct Fused {
  template <typename W>
  static CGINS_HOST_DEVICE void of(W left, W right, W cos, W sin, W* first, W* second) {
    *first = std::fma(left, cos, -(right * sin));
    *second = std::fma(left, sin, right * cos);
  }
};

extern "C" int apply_rotary(const DLTensor* query, const DLTensor* key, const DLTensor* cos, const DLTensor* sin,
                            DLTensor* rotated_query, DLTensor* rotated_key, cgins_stream stream) {
  CGINS_CHECK(cgins::is_contiguous(cos) && cgins::is_contiguous(sin), "dense angles only");
  const int error = rotate_by<Fused>(query, cos, sin, rotated_query, stream);
  return error ? error : rotate_by<Fused>(key, cos, sin, rotated_key, stream);
}
