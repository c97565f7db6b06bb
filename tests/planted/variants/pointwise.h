// y = f(x) and y = f(a, b) for every element, of any strides, broadcast to y.
#pragma once
#include "elements.h"
#include "variant.h"

template <typename T, typename Function>
struct UnaryElement {
  const T* x;
  T* y;
  Elements<2> all;
  CGINS_HOST_DEVICE void operator()(int64_t i) const {
    const Offsets<2> at = all.offsets(i);
    y[at[0]] = T(Function::of(Wide<T>(x[at[1]])));
  }
};

// Function::of(x) gives one element, in the type that it is given or a wider one.
template <typename Function>
int unary_by(const DLTensor* input, DLTensor* out, cgins_stream stream) {
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const auto all = elements<2>(out, {broadcast(out, out), broadcast(input, out)});
    return each(all.count, stream, UnaryElement<T, Function>{cgins::data<T>(input), cgins::data<T>(out), all});
  });
}

template <typename T, typename Function>
struct BinaryElement {
  const T *a, *b;
  T* y;
  Elements<3> all;
  CGINS_HOST_DEVICE void operator()(int64_t i) const {
    const Offsets<3> at = all.offsets(i);
    y[at[0]] = T(Function::of(Wide<T>(a[at[1]]), Wide<T>(b[at[2]])));
  }
};

// Function::of(a, b) gives one element, in the type that it is given or a wider one.
template <typename Function>
int binary_by(const DLTensor* left, const DLTensor* right, DLTensor* out, cgins_stream stream) {
  return cgins::dispatch_floating(left, [&](auto zero) {
    using T = decltype(zero);
    const auto all = elements<3>(out, {broadcast(out, out), broadcast(left, out), broadcast(right, out)});
    const BinaryElement<T, Function> element{cgins::data<T>(left), cgins::data<T>(right), cgins::data<T>(out), all};
    return each(all.count, stream, element);
  });
}
