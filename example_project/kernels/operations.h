// What is computed for one element, in the accumulator's type: shared by the C++ and the CUDA kernels.
#pragma once
#include <cmath>

#include <cgins.h>

struct Copy {
  template <typename Wide>
  CGINS_HOST_DEVICE Wide operator()(Wide x) const {
    return x;
  }
};

struct Relu {
  template <typename Wide>
  CGINS_HOST_DEVICE Wide operator()(Wide x) const {
    return x < 0 ? Wide(0) : x;  // not x > 0 ? x : 0, which hides NaN
  }
};

struct ReluBackward {
  template <typename Wide>
  CGINS_HOST_DEVICE Wide operator()(Wide grad, Wide x) const {
    return x <= 0 ? Wide(0) : grad;
  }
};

struct Sin {
  CGINS_HOST_DEVICE float operator()(float x) const { return sinf(x); }
  CGINS_HOST_DEVICE double operator()(double x) const { return sin(x); }
};

struct Add {
  double alpha;
  template <typename Wide>
  CGINS_HOST_DEVICE Wide operator()(Wide a, Wide b) const {
    return a + Wide(alpha) * b;
  }
};

// The larger number, or NaN if there is one.
template <typename Wide>
CGINS_HOST_DEVICE Wide larger(Wide a, Wide b) {
  return (b > a) | (b != b) ? b : a;
}
