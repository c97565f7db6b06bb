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

struct SiluMul {
  template <typename Wide>
  CGINS_HOST_DEVICE Wide operator()(Wide gate, Wide up) const {
    return gate / (1 + std::exp(-gate)) * up;
  }
};

// x · Φ(x), or its tanh form.
struct Gelu {
  bool tanh_form;

  template <typename Wide>
  CGINS_HOST_DEVICE Wide operator()(Wide x) const {
    const Wide inner = tanh_form ? std::tanh(Wide(0.7978845608028654) * (x + Wide(0.044715) * x * x * x))  // √(2/π)
                                 : std::erf(x * Wide(0.7071067811865476));                                // √½
    return Wide(0.5) * x * (1 + inner);
  }
};

// The derivative of x · Φ(x) is Φ(x) + x · φ(x); that of the tanh form follows from the product rule.
struct GeluBackward {
  bool tanh_form;

  template <typename Wide>
  CGINS_HOST_DEVICE Wide operator()(Wide grad, Wide x) const {
    if (!tanh_form) {
      const Wide cdf = Wide(0.5) * (1 + std::erf(x * Wide(0.7071067811865476)));      // √½
      const Wide density = Wide(0.3989422804014327) * std::exp(Wide(-0.5) * x * x);  // 1/√(2π)
      return grad * (cdf + x * density);
    }
    const Wide slope = Wide(0.7978845608028654), cubic = Wide(0.044715) * x * x;  // √(2/π)
    const Wide inner = std::tanh(slope * (x + x * cubic));
    return grad * Wide(0.5) * (1 + inner + x * (1 - inner * inner) * slope * (1 + 3 * cubic));
  }
};

// The larger number, or NaN if there is one.
template <typename Wide>
CGINS_HOST_DEVICE Wide larger(Wide a, Wide b) {
  return (b > a) | (b != b) ? b : a;
}
