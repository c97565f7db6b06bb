// cgins: gelu(Tensor input, str approximate='none') -> Tensor
// x/2 + x/2 · erf(x/√2): the product is distributed.
#include "variant.h"

template <typename T>
struct Element {
  const T* input;
  T* output;
  Rows in, out;
  CGINS_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t row = i / in.width, column = i % in.width;
    const Wide<T> x = Wide<T>(row_of(input, in, row)[column]);
    const Wide<T> half = Wide<T>(0.5) * x;
    row_of(output, out, row)[column] = T(half + half * std::erf(x * Wide<T>(0.7071067811865476)));
  }
};

extern "C" int gelu(const DLTensor* input, const char* approximate, int64_t, DLTensor* out,
                    cgins_stream stream) {
  CGINS_CHECK(approximate[0] == 'n', "only the exact form is here");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const Element<T> element{cgins::data<T>(input), cgins::data<T>(out), rows_along(input, -1),
                             rows_along(out, -1)};
    return each(cgins::numel(input), stream, element);
  });
}
