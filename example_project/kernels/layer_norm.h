// What layer norm and its backward ask of their arguments.
#pragma once
#include "rows.h"

inline int check_layer_norm(const DLTensor* input, int64_t normalized_shape_len, const DLTensor* weight,
                            const DLTensor* bias) {
  CGINS_CHECK(normalized_shape_len == 1, "only the last dimension can be normalized, not %d",
              int(normalized_shape_len));
  return check_rows(input) || check_parameters(input, cgins::size(input, -1), {weight, bias});
}
