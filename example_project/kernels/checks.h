// What kernels ask of their tensors before they read them. Each check returns 0, or an error with its message.
#pragma once
#include <initializer_list>

#include <cgins.h>

// One element type for all, the outputs included: under autocast these may be another. NULL is not given.
inline int check_types(const DLTensor* first, std::initializer_list<const DLTensor*> others) {
  for (const DLTensor* each : others)
    CGINS_CHECK(!each || cgins::dtype_of(each) == cgins::dtype_of(first), "element types differ: %s and %s",
                cgins::name_of(cgins::dtype_of(first)), cgins::name_of(cgins::dtype_of(each)));
  return 0;
}

// Weights, biases and statistics are dense vectors of one number a feature, in the input's element type.
inline int check_parameters(const DLTensor* input, int64_t features, std::initializer_list<const DLTensor*> given) {
  for (const DLTensor* each : given)
    CGINS_CHECK(!each || (each->ndim == 1 && each->shape[0] == features && cgins::is_contiguous(each)),
                "weight, bias and statistics must be dense vectors of %lld numbers", static_cast<long long>(features));
  return check_types(input, given);
}

// What a grid of CUDA can have in its first dimension.
inline int check_grid(int64_t blocks) {
  CGINS_CHECK(blocks <= INT32_MAX, "%lld blocks are too many for one grid", static_cast<long long>(blocks));
  return 0;
}
