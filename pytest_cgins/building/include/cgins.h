/* cgins.h: what a launcher needs, version 1. No torch header, so a kernel builds in about a second.
 *
 * A launcher is one extern "C" function whose prototype follows from the schema line of its source; the
 * generated prototype is included before the first line, so the compiler itself rejects a mismatch.
 * CONTRACT.md beside this folder is the contract; `cgins schema KERNEL` prints a prototype.
 *
 * C sees the DLPack structs, cgins_stream, cgins_scalar and cgins_fail. C++17 and CUDA C++ see namespace
 * cgins besides. A device kernel (NVRTC, which has no host code) sees the part of it that is for devices: the
 * types of 16 and 8 bits, accumulator, and tensor.
 */
#ifndef CGINS_H_
#define CGINS_H_

#define CGINS_CONTRACT_VERSION 1

#ifdef __CUDACC_RTC__
#include <math.h>
#include <stdint.h>
#else
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- DLPack ------------------------------------------------------------------------------------
 * The real header is taken where the compiler finds it; else the part of it that is needed, of the same
 * layout in memory (DLPack 0.4 to 1.x).
 */
#if !defined(DLPACK_DLPACK_H_) && defined(__has_include)
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#endif
#endif
#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_
typedef enum { kDLCPU = 1, kDLCUDA = 2 } DLDeviceType;

typedef struct {
  DLDeviceType device_type;
  int32_t device_id;
} DLDevice;

typedef enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLComplex = 5, kDLBool = 6 } DLDataTypeCode;

typedef struct {
  uint8_t code;   /* DLDataTypeCode */
  uint8_t bits;   /* of one lane */
  uint16_t lanes; /* always 1 */
} DLDataType;

typedef struct {
  void* data; /* in device memory for kDLCUDA; NULL if the tensor has no elements */
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;       /* ndim sizes */
  int64_t* strides;     /* ndim strides in elements; never NULL under this contract */
  uint64_t byte_offset; /* always 0 under this contract */
} DLTensor;
#endif /* DLPACK_DLPACK_H_ */

/* ---- Stream ------------------------------------------------------------------------------------
 * CUDA: all work goes to this stream, and nothing waits for the device. CPU: NULL.
 */
#ifdef __CUDACC__
#include <cuda_runtime_api.h>
typedef cudaStream_t cgins_stream;
#else
typedef void* cgins_stream;
#endif

/* ---- Scalar ------------------------------------------------------------------------------------ */
typedef enum { CGINS_BOOL = 0, CGINS_INT = 1, CGINS_FLOAT = 2, CGINS_COMPLEX = 3 } cgins_scalar_kind;

/* A number whose type the caller chose (`Scalar` in the schema). `real` is set for every kind. */
typedef struct {
  int32_t kind;     /* cgins_scalar_kind */
  int64_t integer;  /* the value, for CGINS_BOOL and CGINS_INT */
  double real;      /* the value, or the real part of a complex one */
  double imaginary; /* 0 but for CGINS_COMPLEX */
} cgins_scalar;

/* ---- Errors ------------------------------------------------------------------------------------
 * A launcher returns 0, or another number after cgins_fail. The message belongs to the calling thread; a
 * weak definition is merged over the source files of one library and never shared between libraries.
 */
#ifdef __cplusplus
extern "C" {
#endif
#define CGINS_MESSAGE_NBYTES 1024
__attribute__((weak, visibility("hidden"))) __thread char cgins_message[CGINS_MESSAGE_NBYTES];

/* This thread's message, and from then on none. The caller reads it after a launcher returned another number than 0. */
__attribute__((weak, visibility("default"))) const char* cgins_last_error(void) {
  static __thread char told[CGINS_MESSAGE_NBYTES];
  __builtin_memcpy(told, cgins_message, CGINS_MESSAGE_NBYTES);
  cgins_message[0] = 0;
  return told;
}

/* Keeps a message in printf's language, and returns 1: `return cgins_fail("rows %d: too many", rows);` */
__attribute__((weak, visibility("hidden"), format(printf, 1, 2))) int cgins_fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(cgins_message, CGINS_MESSAGE_NBYTES, format, arguments);
  va_end(arguments);
  return 1;
}
#ifdef __cplusplus
}
#endif

/* Leaves the launcher with a message unless the condition holds:
 * CGINS_CHECK(x->ndim == 2, "x has %d dimensions, not 2", x->ndim); */
#define CGINS_CHECK(condition, ...)                      \
  do {                                                   \
    if (!(condition)) return cgins_fail(__VA_ARGS__);    \
  } while (0)

#ifdef __CUDACC__
/* Leaves the launcher with CUDA's own message unless the call succeeds. */
#define CGINS_CUDA_CHECK(call)                                                                         \
  do {                                                                                                 \
    const cudaError_t cgins_status = (call);                                                           \
    if (cgins_status != cudaSuccess)                                                                   \
      return cgins_fail("%s:%d: %s: %s", __FILE__, __LINE__, #call, cudaGetErrorString(cgins_status)); \
  } while (0)

/* After kernel<<<...>>>(...): a bad launch configuration is reported here, not by a later call. */
#define CGINS_LAUNCH_CHECK() CGINS_CUDA_CHECK(cudaGetLastError())
#endif

#endif /* __CUDACC_RTC__ */

/* ---- C++ --------------------------------------------------------------------------------------- */
#ifdef __cplusplus
#ifndef __CUDACC_RTC__
#include <cstring>
#endif

#ifdef __CUDACC__
#define CGINS_HOST_DEVICE __host__ __device__
#else
#define CGINS_HOST_DEVICE
#endif

namespace cgins {

/* Element types that torch has and DLPack can name. */
enum class Dtype : int {
  unknown, boolean, uint8, uint16, uint32, uint64, int8, int16, int32, int64,
  float16, bfloat16, float32, float64, complex64, complex128,
  float8_e4m3fn, float8_e5m2, float8_e8m0fnu,
};

#ifndef __CUDACC_RTC__
inline Dtype dtype_of(DLDataType type) {
  if (type.lanes != 1) return Dtype::unknown;
  const int bits = type.bits;
  switch (type.code) {
    case 6: return bits == 8 ? Dtype::boolean : Dtype::unknown;
    case kDLUInt:
      return bits == 8 ? Dtype::uint8 : bits == 16 ? Dtype::uint16 : bits == 32 ? Dtype::uint32
           : bits == 64 ? Dtype::uint64 : Dtype::unknown;
    case kDLInt:
      return bits == 8 ? Dtype::int8 : bits == 16 ? Dtype::int16 : bits == 32 ? Dtype::int32
           : bits == 64 ? Dtype::int64 : Dtype::unknown;
    case kDLFloat:
      return bits == 16 ? Dtype::float16 : bits == 32 ? Dtype::float32 : bits == 64 ? Dtype::float64
           : Dtype::unknown;
    case kDLBfloat: return bits == 16 ? Dtype::bfloat16 : Dtype::unknown;
    case 10: return bits == 8 ? Dtype::float8_e4m3fn : Dtype::unknown;
    case 12: return bits == 8 ? Dtype::float8_e5m2 : Dtype::unknown;
    case 14: return bits == 8 ? Dtype::float8_e8m0fnu : Dtype::unknown;
    case 5: return bits == 64 ? Dtype::complex64 : bits == 128 ? Dtype::complex128 : Dtype::unknown;
    default: return Dtype::unknown;
  }
}

/* Element type of a tensor: `switch (cgins::dtype_of(x)) { case cgins::Dtype::float32: ... }` */
inline Dtype dtype_of(const DLTensor* tensor) { return dtype_of(tensor->dtype); }

/* torch's name of an element type, for messages. */
inline const char* name_of(Dtype dtype) {
  const char* const names[] = {"unknown", "bool",    "uint8",    "uint16",  "uint32",  "uint64",
                               "int8",    "int16",   "int32",    "int64",   "float16", "bfloat16",
                               "float32", "float64", "complex64", "complex128",
                               "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"};
  return names[static_cast<int>(dtype)];
}

/* Whether it is one of the four that dispatch_floating takes. */
inline bool is_floating(Dtype dtype) {
  return dtype == Dtype::float16 || dtype == Dtype::bfloat16 || dtype == Dtype::float32 ||
         dtype == Dtype::float64;
}
inline bool is_floating(const DLTensor* tensor) { return is_floating(dtype_of(tensor)); }

/* Number of elements: the product of the sizes, 1 for a zero-dimensional tensor. */
inline int64_t numel(const DLTensor* tensor) {
  int64_t product = 1;
  for (int32_t d = 0; d < tensor->ndim; ++d) product *= tensor->shape[d];
  return product;
}

/* Bytes of one element. */
inline int64_t element_nbytes(const DLTensor* tensor) {
  return (int64_t{tensor->dtype.bits} * tensor->dtype.lanes + 7) / 8;
}

/* Size and stride (in elements) of a dimension; a negative one counts from the last. */
inline int64_t size(const DLTensor* tensor, int dimension) {
  return tensor->shape[dimension < 0 ? dimension + tensor->ndim : dimension];
}
inline int64_t stride(const DLTensor* tensor, int dimension) {
  return tensor->strides[dimension < 0 ? dimension + tensor->ndim : dimension];
}

/* Whether the elements lie in row-major order without gaps. Dimensions of size 1 do not matter. */
inline bool is_contiguous(const DLTensor* tensor) {
  int64_t expected = 1;
  for (int32_t d = tensor->ndim - 1; d >= 0; --d) {
    if (tensor->shape[d] == 0) return true;
    if (tensor->shape[d] != 1 && tensor->strides[d] != expected) return false;
    expected *= tensor->shape[d];
  }
  return true;
}

inline bool same_shape(const DLTensor* a, const DLTensor* b) {
  if (a->ndim != b->ndim) return false;
  for (int32_t d = 0; d < a->ndim; ++d)
    if (a->shape[d] != b->shape[d]) return false;
  return true;
}

/* Distance, in elements from the first one, of the element with this index in row-major order. */
inline int64_t offset_of(const DLTensor* tensor, int64_t index) {
  int64_t offset = 0;
  for (int32_t d = tensor->ndim - 1; d >= 0; --d) {
    offset += index % tensor->shape[d] * tensor->strides[d];
    index /= tensor->shape[d];
  }
  return offset;
}

/* First element. The caller answers for T being the element type: see dtype_of and dispatch_floating. */
template <typename T>
inline T* data(const DLTensor* tensor) {
  return reinterpret_cast<T*>(static_cast<char*>(tensor->data) + tensor->byte_offset);
}

#endif /* __CUDACC_RTC__ */

/* ---- floating point of 16 and 8 bits -----------------------------------------------------------
 * Storage types with conversion from and to float, on the host and on the device. Rounding is to nearest,
 * ties to even; NaN stays NaN; subnormal numbers are kept. What is too large becomes infinite; float8_e4m3fn has
 * no infinity: it becomes ±448, as of __NV_SATFINITE. Arithmetic is float's:
 *   float sum = 0; for (...) sum += x[i];  y[i] = sum;      // x, y: float16* or bfloat16*
 */
namespace detail {
CGINS_HOST_DEVICE inline uint32_t bits_of(float value) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(value);
#else
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
#endif
}

CGINS_HOST_DEVICE inline float float_of(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
#endif
}

/* condition ? yes : no, without the branch that would keep compilers from vectorizing loops over 16-bit types. */
CGINS_HOST_DEVICE inline uint32_t select(bool condition, uint32_t yes, uint32_t no) {
  return no ^ ((yes ^ no) & (0u - uint32_t{condition}));
}

CGINS_HOST_DEVICE inline float float16_to_float(uint16_t half) {
#ifdef __CUDA_ARCH__
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
  return value;
#else
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t magnitude = half & 0x7fffu;
  const uint32_t subnormal = bits_of(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f); /* exact */
  const uint32_t normal = (magnitude << 13) + (uint32_t{127 - 15} << 23);
  const uint32_t special = 0x7f800000u | magnitude << 13; /* inf, NaN */
  return float_of(sign | select(magnitude >= 0x7c00u, special, select(magnitude >= 0x0400u, normal, subnormal)));
#endif
}

CGINS_HOST_DEVICE inline uint16_t float_to_float16(float value) {
#ifdef __CUDA_ARCH__
  uint16_t half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
  return half;
#else
  const uint32_t bits = bits_of(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  /* Below 2^-14, adding 0.5 leaves the rounded multiple of 2^-24 in the low bits. */
  const uint32_t subnormal = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t tie_to_even = magnitude >> 13 & 1u;
  const uint32_t normal = (magnitude - (uint32_t{127 - 15} << 23) + 0xfffu + tie_to_even) >> 13;
  const uint32_t special = select(magnitude > 0x7f800000u, 0x7e00u, 0x7c00u); /* quiet NaN; rounds to infinity */
  return static_cast<uint16_t>(
      sign | select(magnitude >= 0x477ff000u, special, select(magnitude < 0x38800000u, subnormal, normal)));
#endif
}

CGINS_HOST_DEVICE inline float bfloat16_to_float(uint16_t bfloat) { return float_of(uint32_t{bfloat} << 16); }

CGINS_HOST_DEVICE inline uint16_t float_to_bfloat16(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  const uint32_t quiet_nan = bits >> 16 | 0x40u;
  return static_cast<uint16_t>(select((bits & 0x7fffffffu) > 0x7f800000u, quiet_nan, rounded));
}
/* The encoding with so many bits of exponent and mantissa, both from 2 up. */
template <int kExponent, int kMantissa>
CGINS_HOST_DEVICE inline float float8_to_float(uint8_t code) {
  constexpr int bias = (1 << (kExponent - 1)) - 1, shift = 23 - kMantissa;
  const uint32_t magnitude = code & 0x7fu;
  const float least = float_of(uint32_t{127 + 1 - bias - kMantissa} << 23);
  const uint32_t subnormal = bits_of(static_cast<float>(static_cast<int32_t>(magnitude)) * least); /* exact */
  const uint32_t normal = (magnitude << shift) + (uint32_t{127 - bias} << 23);
  return float_of(uint32_t{code & 0x80u} << 24 | select(magnitude >> kMantissa == 0, subnormal, normal));
}

template <int kExponent, int kMantissa>
CGINS_HOST_DEVICE inline uint32_t float_to_float8(uint32_t magnitude) {
  constexpr int bias = (1 << (kExponent - 1)) - 1, shift = 23 - kMantissa;
  /* Below the least normal number, adding 2^23 times the least one leaves the rounded multiple in the low bits. */
  constexpr uint32_t large = uint32_t{127 + 1 - bias - kMantissa + 23} << 23;
  const uint32_t subnormal = bits_of(float_of(magnitude) + float_of(large)) - large;
  const uint32_t tie_to_even = magnitude >> shift & 1u;
  const uint32_t half = (uint32_t{1} << (shift - 1)) - 1u;
  const uint32_t normal = (magnitude - (uint32_t{127 - bias} << 23) + half + tie_to_even) >> shift;
  return select(magnitude < uint32_t{127 + 1 - bias} << 23, subnormal, normal);
}
}  // namespace detail

struct float16 {
  uint16_t bits;
  float16() = default;
  CGINS_HOST_DEVICE float16(float value) : bits(detail::float_to_float16(value)) {}
  CGINS_HOST_DEVICE operator float() const { return detail::float16_to_float(bits); }
};

struct bfloat16 {
  uint16_t bits;
  bfloat16() = default;
  CGINS_HOST_DEVICE bfloat16(float value) : bits(detail::float_to_bfloat16(value)) {}
  CGINS_HOST_DEVICE operator float() const { return detail::bfloat16_to_float(bits); }
};

struct float8_e4m3fn {
  uint8_t bits;
  float8_e4m3fn() = default;
  CGINS_HOST_DEVICE float8_e4m3fn(float value) {
    const uint32_t whole = detail::bits_of(value), magnitude = whole & 0x7fffffffu;
    const uint32_t special = detail::select(magnitude > 0x7f800000u, 0x7fu, 0x7eu); /* NaN, 448 */
    const uint32_t code = detail::select(magnitude >= 0x43e00000u, special, detail::float_to_float8<4, 3>(magnitude));
    bits = static_cast<uint8_t>(((whole >> 24) & 0x80u) | code);
  }
  CGINS_HOST_DEVICE operator float() const {
    const float value = detail::float8_to_float<4, 3>(bits);
    return detail::float_of(detail::select((bits & 0x7fu) == 0x7fu, 0x7fc00000u, detail::bits_of(value)));
  }
};

struct float8_e5m2 {
  uint8_t bits;
  float8_e5m2() = default;
  CGINS_HOST_DEVICE float8_e5m2(float value) {
    const uint32_t whole = detail::bits_of(value), magnitude = whole & 0x7fffffffu;
    const uint32_t special = detail::select(magnitude > 0x7f800000u, 0x7fu, 0x7cu); /* NaN, infinity */
    const uint32_t code = detail::select(magnitude >= 0x47700000u, special, detail::float_to_float8<5, 2>(magnitude));
    bits = static_cast<uint8_t>(((whole >> 24) & 0x80u) | code);
  }
  /* The upper half of a float16. */
  CGINS_HOST_DEVICE operator float() const {
    return detail::float16_to_float(static_cast<uint16_t>(uint32_t{bits} << 8));
  }
};

/* The exponent of a scale: a power of two from 2^-127 to 2^127, or NaN. A sign is lost. */
struct float8_e8m0fnu {
  uint8_t bits;
  float8_e8m0fnu() = default;
  CGINS_HOST_DEVICE float8_e8m0fnu(float value) {
    const uint32_t magnitude = detail::bits_of(value) & 0x7fffffffu;
    const uint32_t rounded = (magnitude + detail::select(magnitude >> 23 == 0, 0x3fffffu, 0x400000u)) >> 23;
    bits = static_cast<uint8_t>(detail::select(rounded > 0xffu, 0xffu, rounded));
  }
  CGINS_HOST_DEVICE operator float() const {
    const uint32_t normal = detail::select(bits == 0xffu, 0x7fc00000u, uint32_t{bits} << 23);
    return detail::float_of(detail::select(bits == 0, 0x400000u, normal));
  }
};

namespace detail {
template <typename T>
struct accumulator_of {
  using type = float;
};
template <>
struct accumulator_of<double> {
  using type = double;
};
}  // namespace detail

/* The type to accumulate in: float for floating point of 8, 16 and 32 bits, double for double. */
template <typename T>
using accumulator = typename detail::accumulator_of<T>::type;

#ifdef __CUDACC_RTC__
/* A tensor with any strides, as `view(x)` of a launch line passes it by value. */
template <typename T>
struct tensor {
  T* data;
  int64_t ndim; /* at most 8 */
  int64_t shape[8];
  int64_t strides[8]; /* in elements */

  __device__ int64_t numel() const {
    int64_t product = 1;
    for (int64_t d = 0; d < ndim; ++d) product *= shape[d];
    return product;
  }
  /* The element with this index in row-major order. */
  __device__ T& operator[](int64_t index) const {
    int64_t offset = 0;
    for (int64_t d = ndim - 1; d >= 0; --d) {
      offset += index % shape[d] * strides[d];
      index /= shape[d];
    }
    return data[offset];
  }
};
#else

/* Calls `function` with a value of the tensor's element type, for the four floating-point types, and returns
 * what it returns; fails with a message for other types:
 *   return cgins::dispatch_floating(x, [&](auto zero) { using T = decltype(zero); ...; return 0; }); */
template <typename Function>
inline int dispatch_floating(const DLTensor* tensor, Function&& function) {
  switch (dtype_of(tensor)) {
    case Dtype::float32: return function(float{});
    case Dtype::float64: return function(double{});
    case Dtype::float16: return function(float16{});
    case Dtype::bfloat16: return function(bfloat16{});
    default: return cgins_fail("element type %s is not supported", name_of(dtype_of(tensor)));
  }
}
#endif /* __CUDACC_RTC__ */

}  // namespace cgins
#endif /* __cplusplus */
#endif /* CGINS_H_ */
