// out = input · other for every matrix of a batch, whatever the strides: shared by the C++ and the CUDA kernel.
#pragma once
#include "elements.h"

struct Product {
  int64_t rows, columns, depth;
  int64_t input_row, input_column, other_row, other_column, out_row, out_column;  // strides
  Elements<3> batch;  // offsets of each matrix of out, input and other
};

inline int describe(const DLTensor* input, const DLTensor* other, const DLTensor* out, Product* product) {
  CGINS_CHECK(input->ndim >= 2 && other->ndim >= 2, "a vector (%d and %d dimensions) is not supported", input->ndim,
              other->ndim);
  CGINS_CHECK(out->ndim <= kMaxDims, "%d dimensions, more than %d", out->ndim, kMaxDims);
  if (check_types(input, {other, out})) return 1;
  DLTensor batches[] = {*out, *input, *other};
  for (DLTensor& tensor : batches) tensor.ndim -= 2;
  *product = {cgins::size(out, -2), cgins::size(out, -1), cgins::size(input, -1),
              cgins::stride(input, -2), cgins::stride(input, -1), cgins::stride(other, -2),
              cgins::stride(other, -1), cgins::stride(out, -2), cgins::stride(out, -1),
              elements<3>(&batches[0], {broadcast(&batches[0], &batches[0]), broadcast(&batches[1], &batches[0]),
                                        broadcast(&batches[2], &batches[0])})};
  return 0;
}
