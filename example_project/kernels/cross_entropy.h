// Cross entropy of class indices: what both kernels ask of their arguments.
#pragma once
#include <cstring>

#include "rows.h"

enum class Reduction { none, mean, sum };

// Classes lie along the second dimension, or the only one.
inline Rows classes_of(const DLTensor* input) { return rows_along(input, input->ndim > 1 ? 1 : 0); }

inline int describe(const DLTensor* input, const DLTensor* target, const DLTensor* out, const char* reduction,
                    int64_t reduction_len, Reduction* made) {
  if (check_rows(input) || check_types(input, {out})) return 1;
  CGINS_CHECK(cgins::dtype_of(target) == cgins::Dtype::int64, "target is %s, not class indices in int64",
              cgins::name_of(cgins::dtype_of(target)));
  CGINS_CHECK(cgins::is_contiguous(target) && cgins::is_contiguous(out), "target and output must be contiguous");
  *made = reduction_len == 4 && !std::memcmp(reduction, "none", 4)   ? Reduction::none
          : reduction_len == 3 && !std::memcmp(reduction, "sum", 3) ? Reduction::sum
                                                                    : Reduction::mean;
  return 0;
}
