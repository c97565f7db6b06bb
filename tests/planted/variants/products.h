// Matrix products with one thread an element of the output.
#pragma once
#include "matmul.h"
#include "variant.h"

template <typename T, typename Dot>
struct ProductElement {
  const T *input, *other;
  T* out;
  Product p;
  CGINS_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t column = i % p.columns, row = i / p.columns % p.rows;
    const Offsets<3> matrix = p.batch.offsets(i / p.columns / p.rows);
    const Row<const T> x{input + matrix[1] + row * p.input_row, p.input_column};
    const Row<const T> y{other + matrix[2] + column * p.other_column, p.other_row};
    out[matrix[0] + row * p.out_row + column * p.out_column] = T(Dot::template of<T>(x, y, p.depth));
  }
};

// Dot::of<T>(row of input, column of other, depth) gives one element of the output.
template <typename Dot>
int matmul_by(const DLTensor* input, const DLTensor* other, DLTensor* out, cgins_stream stream) {
  Product product;
  if (describe(input, other, out, &product)) return 1;
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const ProductElement<T, Dot> element{cgins::data<T>(input), cgins::data<T>(other), cgins::data<T>(out), product};
    return each(product.batch.count * product.rows * product.columns, stream, element);
  });
}
