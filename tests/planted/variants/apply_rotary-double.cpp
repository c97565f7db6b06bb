// cgins: apply_rotary(Tensor query, Tensor key, Tensor cos, Tensor sin)
//     -> (Tensor rotated_query, Tensor rotated_key)
// In double until the last rounding.
#include "turns.h"

struct Double {
  template <typename W>
  static CGINS_HOST_DEVICE void of(W left, W right, W cos, W sin, W* first, W* second) {
    *first = W(double(left) * double(cos) - double(right) * double(sin));
    *second = W(double(right) * double(cos) + double(left) * double(sin));
  }
};

extern "C" int apply_rotary(const DLTensor* query, const DLTensor* key, const DLTensor* cos, const DLTensor* sin,
                            DLTensor* rotated_query, DLTensor* rotated_key, cgins_stream stream) {
  CGINS_CHECK(cgins::is_contiguous(cos) && cgins::is_contiguous(sin), "dense angles only");
  const int error = rotate_by<Double>(query, cos, sin, rotated_query, stream);
  return error ? error : rotate_by<Double>(key, cos, sin, rotated_key, stream);
}
