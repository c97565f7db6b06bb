/* c10::Half and c10::BFloat16: conversions of cgins.h, arithmetic through float as torch has it. */
#pragma once

#include <limits>
#include <type_traits>

#ifdef __CUDACC__
#include <cuda_fp16.h>
#ifdef CGINS_SHADOW_BFLOAT16
#include <cuda_bf16.h>
#endif
#endif

#include "../../cgins.h"

#define C10_HOST_DEVICE CGINS_HOST_DEVICE
#ifdef __CUDACC__
#define C10_DEVICE __device__
#define C10_HOST __host__
#define C10_LAUNCH_BOUNDS_0 __launch_bounds__(256, 4)
#define C10_LAUNCH_BOUNDS_1(threads) __launch_bounds__(threads)
#define C10_LAUNCH_BOUNDS_2(threads, blocks) __launch_bounds__(threads, blocks)
#define C10_WARP_SIZE 32
#else
#define C10_DEVICE
#define C10_HOST
#endif

namespace c10 {

struct alignas(2) Half {
  unsigned short x;
  struct from_bits_t {};
  static constexpr C10_HOST_DEVICE from_bits_t from_bits() { return from_bits_t(); }
  Half() = default;
  constexpr C10_HOST_DEVICE Half(unsigned short bits, from_bits_t) : x(bits) {}
  inline C10_HOST_DEVICE Half(float value) : x(cgins::detail::float_to_float16(value)) {}
  inline C10_HOST_DEVICE operator float() const { return cgins::detail::float16_to_float(x); }
#ifdef __CUDACC__
  inline C10_HOST_DEVICE Half(const __half& value) : x(reinterpret_cast<const unsigned short&>(value)) {}
  inline C10_HOST_DEVICE operator __half() const { return reinterpret_cast<const __half&>(x); }
#endif
};

struct alignas(2) BFloat16 {
  unsigned short x;
  struct from_bits_t {};
  static constexpr C10_HOST_DEVICE from_bits_t from_bits() { return from_bits_t(); }
  BFloat16() = default;
  constexpr C10_HOST_DEVICE BFloat16(unsigned short bits, from_bits_t) : x(bits) {}
  inline C10_HOST_DEVICE BFloat16(float value) : x(cgins::detail::float_to_bfloat16(value)) {}
  inline C10_HOST_DEVICE operator float() const { return cgins::detail::bfloat16_to_float(x); }
#if defined(__CUDACC__) && defined(CGINS_SHADOW_BFLOAT16)
  inline C10_HOST_DEVICE BFloat16(const __nv_bfloat16& value) : x(reinterpret_cast<const unsigned short&>(value)) {}
  explicit inline C10_HOST_DEVICE operator __nv_bfloat16() const {
    return reinterpret_cast<const __nv_bfloat16&>(x);
  }
#endif
};

/* T op T is T; with float or double it is that; with an integer T. All through float. */
#define CGINS_SHADOW_OPERATOR(T, op)                                                                  \
  inline C10_HOST_DEVICE T operator op(const T& a, const T& b) {                                      \
    return static_cast<float>(a) op static_cast<float>(b);                                            \
  }                                                                                                   \
  inline C10_HOST_DEVICE T& operator op##=(T& a, const T& b) { return a = a op b; }                   \
  inline C10_HOST_DEVICE float operator op(T a, float b) { return static_cast<float>(a) op b; }       \
  inline C10_HOST_DEVICE float operator op(float a, T b) { return a op static_cast<float>(b); }       \
  inline C10_HOST_DEVICE float& operator op##=(float& a, const T& b) { return a op##= float(b); }    \
  inline C10_HOST_DEVICE double operator op(T a, double b) { return static_cast<double>(a) op b; }    \
  inline C10_HOST_DEVICE double operator op(double a, T b) { return a op static_cast<double>(b); }    \
  inline C10_HOST_DEVICE T operator op(T a, int b) { return a op static_cast<T>(float(b)); }          \
  inline C10_HOST_DEVICE T operator op(int a, T b) { return static_cast<T>(float(a)) op b; }          \
  inline C10_HOST_DEVICE T operator op(T a, int64_t b) { return a op static_cast<T>(float(b)); }      \
  inline C10_HOST_DEVICE T operator op(int64_t a, T b) { return static_cast<T>(float(a)) op b; }
#define CGINS_SHADOW_ARITHMETIC(T)                                                          \
  CGINS_SHADOW_OPERATOR(T, +)                                                               \
  CGINS_SHADOW_OPERATOR(T, -)                                                               \
  CGINS_SHADOW_OPERATOR(T, *)                                                               \
  CGINS_SHADOW_OPERATOR(T, /)                                                               \
  inline C10_HOST_DEVICE T operator-(const T& a) { return T(static_cast<unsigned short>(a.x ^ 0x8000u), T::from_bits()); }
CGINS_SHADOW_ARITHMETIC(Half)
CGINS_SHADOW_ARITHMETIC(BFloat16)
#undef CGINS_SHADOW_ARITHMETIC
#undef CGINS_SHADOW_OPERATOR

}  // namespace c10

namespace std {
template <>
struct numeric_limits<c10::Half> : numeric_limits<float> {
  static constexpr c10::Half bits(unsigned short value) { return c10::Half(value, c10::Half::from_bits()); }
  static constexpr c10::Half min() { return bits(0x0400); }
  static constexpr c10::Half lowest() { return bits(0xFBFF); }
  static constexpr c10::Half max() { return bits(0x7BFF); }
  static constexpr c10::Half epsilon() { return bits(0x1400); }
  static constexpr c10::Half round_error() { return bits(0x3800); }
  static constexpr c10::Half infinity() { return bits(0x7C00); }
  static constexpr c10::Half quiet_NaN() { return bits(0x7E00); }
  static constexpr c10::Half signaling_NaN() { return bits(0x7D00); }
  static constexpr c10::Half denorm_min() { return bits(0x0001); }
  static constexpr int digits = 11, digits10 = 3, max_digits10 = 5;
  static constexpr int min_exponent = -13, min_exponent10 = -4, max_exponent = 16, max_exponent10 = 4;
};
template <>
struct numeric_limits<c10::BFloat16> : numeric_limits<float> {
  static constexpr c10::BFloat16 bits(unsigned short value) {
    return c10::BFloat16(value, c10::BFloat16::from_bits());
  }
  static constexpr c10::BFloat16 min() { return bits(0x0080); }
  static constexpr c10::BFloat16 lowest() { return bits(0xFF7F); }
  static constexpr c10::BFloat16 max() { return bits(0x7F7F); }
  static constexpr c10::BFloat16 epsilon() { return bits(0x3C00); }
  static constexpr c10::BFloat16 round_error() { return bits(0x3F00); }
  static constexpr c10::BFloat16 infinity() { return bits(0x7F80); }
  static constexpr c10::BFloat16 quiet_NaN() { return bits(0x7FC0); }
  static constexpr c10::BFloat16 signaling_NaN() { return bits(0x7F80 | 0x20); }
  static constexpr c10::BFloat16 denorm_min() { return bits(0x0001); }
  static constexpr int digits = 8, digits10 = 2, max_digits10 = 4;
};
}  // namespace std

namespace at {
/* The type in which torch computes with T, and the one in which it accumulates. */
template <typename T>
struct OpMathType {
  using type = T;
};
template <>
struct OpMathType<c10::Half> {
  using type = float;
};
template <>
struct OpMathType<c10::BFloat16> {
  using type = float;
};
template <typename T>
using opmath_type = typename OpMathType<T>::type;
template <typename T, bool is_cuda>
using acc_type = std::conditional_t<
    std::is_same<T, bool>::value, bool,
    std::conditional_t<std::is_integral<T>::value, int64_t,
                       std::conditional_t<std::is_same<T, float>::value && !is_cuda, double, opmath_type<T>>>>;
}  // namespace at
