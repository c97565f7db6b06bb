// What both batch norms ask of their arguments: evaluation, with the statistics that training has left.
#pragma once
#include <initializer_list>

#include "elements.h"

inline int check_batch_norm(const DLTensor* input, const DLTensor* mean, const DLTensor* var, const DLTensor* weight,
                            const DLTensor* bias, const DLTensor* out, bool training) {
  CGINS_CHECK(!training, "training must be False");
  CGINS_CHECK(mean && var, "running_mean and running_var must be given");
  CGINS_CHECK(input->ndim >= 2 && input->ndim <= kMaxDims, "%d dimensions, not 2 to %d", input->ndim, kMaxDims);
  return check_types(input, {out}) || check_parameters(input, input->shape[1], {mean, var, weight, bias});
}
