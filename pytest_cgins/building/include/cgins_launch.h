/* cgins_launch.h: how the checks behind a device kernel read its parameters. Included for NVRTC alone.
 *
 * A parameter becomes a number: kind (bits 12 to 15) and element type (bits 0 to 7). The compiler itself
 * computes it from the kernel's type, so that what is passed is what the kernel takes. device.py reads them.
 */
#ifndef CGINS_LAUNCH_H_
#define CGINS_LAUNCH_H_

struct __half;
struct __nv_bfloat16;
struct __half2;
struct __nv_bfloat162;
struct __nv_fp8_e4m3;
struct __nv_fp8_e5m2;
struct __nv_fp8_e8m0;

namespace cgins {
namespace launch {

enum : unsigned { kOther = 0x0ff, kNumber = 0x1000, kPointer = 0x2000, kView = 0x4000, kConst = 0x800 };

/* Element type: kind in the high digit, bytes in the low one; 0 for void. */
template <typename T> struct element { static constexpr unsigned value = kOther; };
#define CGINS_ELEMENT(type, code) \
  template <> struct element<type> { static constexpr unsigned value = code; };
CGINS_ELEMENT(void, 0x00)
CGINS_ELEMENT(bool, 0x01)
CGINS_ELEMENT(char, 0x11)
CGINS_ELEMENT(signed char, 0x11)
CGINS_ELEMENT(short, 0x12)
CGINS_ELEMENT(int, 0x14)
CGINS_ELEMENT(long, 0x18)
CGINS_ELEMENT(long long, 0x18)
CGINS_ELEMENT(unsigned char, 0x21)
CGINS_ELEMENT(unsigned short, 0x22)
CGINS_ELEMENT(unsigned int, 0x24)
CGINS_ELEMENT(unsigned long, 0x28)
CGINS_ELEMENT(unsigned long long, 0x28)
CGINS_ELEMENT(float, 0x34)
CGINS_ELEMENT(double, 0x38)
CGINS_ELEMENT(float16, 0x32)
CGINS_ELEMENT(__half, 0x32)
CGINS_ELEMENT(bfloat16, 0x42)
CGINS_ELEMENT(__nv_bfloat16, 0x42)
CGINS_ELEMENT(float8_e4m3fn, 0x61)
CGINS_ELEMENT(__nv_fp8_e4m3, 0x61)
CGINS_ELEMENT(float8_e5m2, 0x71)
CGINS_ELEMENT(__nv_fp8_e5m2, 0x71)
CGINS_ELEMENT(float8_e8m0fnu, 0x81)
CGINS_ELEMENT(__nv_fp8_e8m0, 0x81)
/* Vectors stand for their elements; two floats may also be a complex number, which device.py knows. */
CGINS_ELEMENT(char2, 0x11)
CGINS_ELEMENT(char4, 0x11)
CGINS_ELEMENT(uchar2, 0x21)
CGINS_ELEMENT(uchar4, 0x21)
CGINS_ELEMENT(short2, 0x12)
CGINS_ELEMENT(short4, 0x12)
CGINS_ELEMENT(int2, 0x14)
CGINS_ELEMENT(int4, 0x14)
CGINS_ELEMENT(uint2, 0x24)
CGINS_ELEMENT(uint4, 0x24)
CGINS_ELEMENT(float2, 0x58)
CGINS_ELEMENT(float4, 0x34)
CGINS_ELEMENT(double2, 0x60)
CGINS_ELEMENT(__half2, 0x32)
CGINS_ELEMENT(__nv_bfloat162, 0x42)
#undef CGINS_ELEMENT

template <typename T> struct plain { using type = T; };
template <typename T> struct plain<const T> { using type = T; };
template <typename T> struct plain<volatile T> { using type = T; };
template <typename T> struct plain<const volatile T> { using type = T; };

template <typename T> struct is_enum { static constexpr bool value = __is_enum(T); };
template <typename T, bool = is_enum<T>::value> struct number { static constexpr unsigned value = element<T>::value; };
template <typename T> struct number<T, true> { static constexpr unsigned value = element<__underlying_type(T)>::value; };

template <typename T> struct is_const { static constexpr bool value = false; };
template <typename T> struct is_const<const T> { static constexpr bool value = true; };
template <typename T> struct is_const<const volatile T> { static constexpr bool value = true; };

template <typename T> struct pointee {
  static constexpr unsigned value = element<typename plain<T>::type>::value | (is_const<T>::value ? kConst : 0u);
};

template <typename T> struct parameter { static constexpr unsigned value = kNumber | number<T>::value; };
template <typename T> struct parameter<T*> { static constexpr unsigned value = kPointer | pointee<T>::value; };
template <typename T> struct parameter<tensor<T>> { static constexpr unsigned value = kView | pointee<T>::value; };
template <typename T> struct parameter<const T> : parameter<T> {};

template <typename Function> struct kernel {
  static constexpr bool is_kernel = false;
};
template <typename... P> struct kernel<void (*)(P...)> {
  static constexpr bool is_kernel = true;
  static constexpr int count = sizeof...(P);
  __device__ static constexpr unsigned at(int index) {
    const unsigned all[] = {parameter<P>::value..., 0u};
    return index < count ? all[index] : 0u;
  }
};

/* What an argument of the launch line may be passed to. */
__device__ constexpr bool takes_tensor(unsigned code) { return (code & kPointer) && (code & 0xffu) != kOther; }
__device__ constexpr bool takes_view(unsigned code) { return (code & kView) && (code & 0xffu) != kOther; }
__device__ constexpr bool takes_output(unsigned code) { return !(code & kConst); }
__device__ constexpr bool takes_number(unsigned code) { return (code & kNumber) && (code & 0xffu) != kOther; }
__device__ constexpr bool takes_real(unsigned code) {
  return code == (kNumber | 0x34u) || code == (kNumber | 0x38u);
}

/* Exists only so that its name in the machine code tells the parameters. */
template <unsigned... codes> __device__ char parameters;

}  // namespace launch
}  // namespace cgins

#endif /* CGINS_LAUNCH_H_ */
