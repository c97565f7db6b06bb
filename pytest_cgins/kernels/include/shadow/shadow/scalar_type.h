/* Element types, devices, layouts, tensor options and numbers. */
#pragma once

#include <cstdlib>
#include <string_view>

#include <shadow/array_ref.h>
#include <shadow/half.h>

namespace c10 {

// In the order of DTYPES in runtime.cpp.
enum class ScalarType : int8_t {
  Byte, Char, Short, Int, Long, Half, Float, Double, ComplexHalf, ComplexFloat, ComplexDouble, Bool, BFloat16,
  Float8_e5m2, Float8_e4m3fn, UInt16, UInt32, UInt64, Undefined
};

#define CGINS_SHADOW_TYPES(X)                                                                              \
  X(uint8_t, Byte) X(int8_t, Char) X(int16_t, Short) X(int, Int) X(int64_t, Long) X(Half, Half)            \
  X(float, Float) X(double, Double) X(bool, Bool) X(BFloat16, BFloat16) X(uint16_t, UInt16)                \
  X(uint32_t, UInt32) X(uint64_t, UInt64)

template <typename T>
struct CppTypeToScalarType {
  static_assert(!sizeof(T*), "this element type is not in the shadow headers; build with the real ones");
};
template <ScalarType>
struct ScalarTypeToCPPType;
#define CGINS_SHADOW_TYPE(T, name)                          \
  template <>                                               \
  struct CppTypeToScalarType<T> {                           \
    static constexpr ScalarType value = ScalarType::name;   \
    constexpr operator ScalarType() const { return value; } \
  };                                                        \
  template <>                                               \
  struct ScalarTypeToCPPType<ScalarType::name> {            \
    using type = T;                                         \
  };
CGINS_SHADOW_TYPES(CGINS_SHADOW_TYPE)
#undef CGINS_SHADOW_TYPE
namespace impl {
template <ScalarType type>
using ScalarTypeToCPPTypeT = typename ScalarTypeToCPPType<type>::type;
}

inline const char* toString(ScalarType type) {
  constexpr const char* names[] = {"Byte",        "Char",         "Short",         "Int",         "Long",
                                   "Half",        "Float",        "Double",        "ComplexHalf", "ComplexFloat",
                                   "ComplexDouble", "Bool",       "BFloat16",      "Float8_e5m2", "Float8_e4m3fn",
                                   "UInt16",      "UInt32",       "UInt64",        "Undefined"};
  return names[static_cast<int>(type)];
}
inline size_t elementSize(ScalarType type) {
  constexpr size_t sizes[] = {1, 1, 2, 4, 8, 2, 4, 8, 4, 8, 16, 1, 2, 1, 1, 2, 4, 8, 0};
  return sizes[static_cast<int>(type)];
}
inline bool isComplexType(ScalarType type) {
  return type == ScalarType::ComplexHalf || type == ScalarType::ComplexFloat || type == ScalarType::ComplexDouble;
}
inline bool isReducedFloatingType(ScalarType type) {
  return type == ScalarType::Half || type == ScalarType::BFloat16 || type == ScalarType::Float8_e5m2 ||
         type == ScalarType::Float8_e4m3fn;
}
inline bool isFloatingType(ScalarType type) {
  return type == ScalarType::Float || type == ScalarType::Double || isReducedFloatingType(type);
}
inline bool isIntegralType(ScalarType type, bool with_bool) {
  return !isFloatingType(type) && !isComplexType(type) && (with_bool || type != ScalarType::Bool);
}

constexpr ScalarType kByte = ScalarType::Byte, kUInt8 = kByte, kChar = ScalarType::Char, kInt8 = kChar,
                     kShort = ScalarType::Short, kInt16 = kShort, kInt = ScalarType::Int, kInt32 = kInt,
                     kLong = ScalarType::Long, kInt64 = kLong, kHalf = ScalarType::Half, kFloat16 = kHalf,
                     kFloat = ScalarType::Float, kFloat32 = kFloat, kDouble = ScalarType::Double,
                     kFloat64 = kDouble, kBool = ScalarType::Bool, kBFloat16 = ScalarType::BFloat16,
                     kComplexHalf = ScalarType::ComplexHalf, kComplexFloat = ScalarType::ComplexFloat,
                     kComplexDouble = ScalarType::ComplexDouble, kFloat8_e5m2 = ScalarType::Float8_e5m2,
                     kFloat8_e4m3fn = ScalarType::Float8_e4m3fn, kUInt16 = ScalarType::UInt16,
                     kUInt32 = ScalarType::UInt32, kUInt64 = ScalarType::UInt64;

}  // namespace c10

namespace caffe2 {
/* What dtype() of a tensor returns. */
class TypeMeta {
 public:
  explicit TypeMeta(c10::ScalarType type) : type_(type) {}
  c10::ScalarType toScalarType() const { return type_; }
  size_t itemsize() const { return c10::elementSize(type_); }
  std::string_view name() const {
    constexpr const char* names[] = {"unsigned char", "signed char", "short int", "int", "long int",
                                     "c10::Half", "float", "double", "c10::complex<c10::Half>",
                                     "c10::complex<float>", "c10::complex<double>", "bool", "c10::BFloat16",
                                     "c10::Float8_e5m2", "c10::Float8_e4m3fn", "short unsigned int",
                                     "unsigned int", "long unsigned int", "nullptr (uninitialized)"};
    return names[static_cast<int>(type_)];
  }
  template <typename T>
  bool Match() const {
    return type_ == c10::CppTypeToScalarType<T>::value;
  }
  std::string str() const { return std::string(name()); }
  friend bool operator==(TypeMeta a, TypeMeta b) { return a.type_ == b.type_; }
  friend bool operator!=(TypeMeta a, TypeMeta b) { return a.type_ != b.type_; }

 private:
  c10::ScalarType type_;
};
}  // namespace caffe2

namespace c10 {

using caffe2::TypeMeta;
inline bool operator==(ScalarType a, TypeMeta b) { return a == b.toScalarType(); }
inline bool operator==(TypeMeta a, ScalarType b) { return a.toScalarType() == b; }
inline bool operator!=(ScalarType a, TypeMeta b) { return a != b.toScalarType(); }
inline bool operator!=(TypeMeta a, ScalarType b) { return a.toScalarType() != b; }
inline ScalarType typeMetaToScalarType(TypeMeta type) { return type.toScalarType(); }
inline TypeMeta scalarTypeToTypeMeta(ScalarType type) { return TypeMeta(type); }

enum class DeviceType : int8_t { CPU, CUDA, Meta };
using DeviceIndex = int8_t;
constexpr DeviceType kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA, kMeta = DeviceType::Meta;
inline std::string toString(DeviceType type) {
  return type == kCPU ? "cpu" : type == kCUDA ? "cuda" : "meta";
}

class Device {
 public:
  using Type = DeviceType;
  Device(DeviceType type, DeviceIndex index = -1) : type_(type), index_(index) {}
  Device(const std::string& text) : type_(kCPU), index_(-1) {
    const size_t colon = text.find(':');
    const std::string name = text.substr(0, colon);
    TORCH_CHECK(name == "cpu" || name == "cuda" || name == "meta", "device ", text,
                " is not in the shadow headers; build with the real ones");
    type_ = name == "cuda" ? kCUDA : name == "meta" ? kMeta : kCPU;
    if (colon != std::string::npos) index_ = static_cast<DeviceIndex>(std::atoi(text.c_str() + colon + 1));
  }
  Device(const char* text) : Device(std::string(text)) {}
  DeviceType type() const { return type_; }
  DeviceIndex index() const { return index_; }
  bool has_index() const { return index_ != -1; }
  void set_index(DeviceIndex index) { index_ = index; }
  bool is_cuda() const { return type_ == kCUDA; }
  bool is_cpu() const { return type_ == kCPU; }
  bool is_meta() const { return type_ == kMeta; }
  std::string str() const { return toString(type_) + (has_index() ? ":" + std::to_string(index_) : ""); }
  bool operator==(const Device& other) const { return type_ == other.type_ && index_ == other.index_; }
  bool operator!=(const Device& other) const { return !(*this == other); }

 private:
  DeviceType type_;
  DeviceIndex index_;
};

enum class Layout : int8_t { Strided };
constexpr Layout kStrided = Layout::Strided;
inline std::string toString(Layout) { return "Strided"; }
enum class MemoryFormat : int8_t { Contiguous, Preserve, ChannelsLast, ChannelsLast3d };
inline std::string toString(MemoryFormat format) {
  constexpr const char* names[] = {"contiguous_format", "preserve_format", "channels_last", "channels_last_3d"};
  return names[static_cast<int>(format)];
}

/* A number of any type. */
class Scalar {
 public:
  Scalar() : Scalar(int64_t{0}) {}
  template <typename T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
  Scalar(T value) : real_(static_cast<double>(value)), integer_(static_cast<int64_t>(value)) {
    kind_ = std::is_same_v<T, bool> ? Kind::boolean : std::is_integral_v<T> ? Kind::integer : Kind::real;
  }
  Scalar(Half value) : Scalar(static_cast<float>(value)) {}
  Scalar(BFloat16 value) : Scalar(static_cast<float>(value)) {}
  bool isFloatingPoint() const { return kind_ == Kind::real; }
  bool isBoolean() const { return kind_ == Kind::boolean; }
  bool isIntegral(bool with_bool) const { return kind_ == Kind::integer || (with_bool && isBoolean()); }
  bool isComplex() const { return false; }
  template <typename T>
  T to() const {
    if constexpr (std::is_integral_v<T>) return isFloatingPoint() ? static_cast<T>(real_) : static_cast<T>(integer_);
    else return static_cast<T>(real_);
  }
  double toDouble() const { return to<double>(); }
  float toFloat() const { return to<float>(); }
  int64_t toLong() const { return to<int64_t>(); }
  int toInt() const { return to<int>(); }
  bool toBool() const { return to<bool>(); }
  ScalarType type() const { return isFloatingPoint() ? kDouble : isBoolean() ? kBool : kLong; }

 private:
  enum class Kind { boolean, integer, real } kind_;
  double real_;
  int64_t integer_;
};

class TensorOptions {
 public:
  TensorOptions() = default;
  TensorOptions(ScalarType type) : dtype_(type) {}
  TensorOptions(TypeMeta type) : dtype_(type.toScalarType()) {}
  TensorOptions(Layout layout) : layout_(layout) {}
  template <typename T, std::enable_if_t<std::is_same_v<std::decay_t<T>, Device>, int> = 0>
  TensorOptions(T&& device) : device_(device) {}
  template <typename T, std::enable_if_t<std::is_constructible_v<Device, T&&> && !std::is_same_v<std::decay_t<T>, Device> &&
                                             !std::is_same_v<std::decay_t<T>, TensorOptions>,
                                         int> = 0>
  TensorOptions(T&& device) : device_(Device(std::forward<T>(device))) {}
  TensorOptions(MemoryFormat format) : memory_format_(format) {}
  [[nodiscard]] TensorOptions dtype(std::optional<ScalarType> type) const { return with(&TensorOptions::dtype_, type); }
  [[nodiscard]] TensorOptions dtype(TypeMeta type) const { return dtype(type.toScalarType()); }
  template <typename T>
  [[nodiscard]] TensorOptions dtype() const {
    return dtype(CppTypeToScalarType<T>::value);
  }
  [[nodiscard]] TensorOptions device(std::optional<Device> device) const { return with(&TensorOptions::device_, device); }
  [[nodiscard]] TensorOptions device(DeviceType type, DeviceIndex index = -1) const { return device(Device(type, index)); }
  [[nodiscard]] TensorOptions device_index(DeviceIndex index) const { return device(Device(kCUDA, index)); }
  [[nodiscard]] TensorOptions layout(std::optional<Layout> layout) const { return with(&TensorOptions::layout_, layout); }
  [[nodiscard]] TensorOptions requires_grad(std::optional<bool> value) const {
    return with(&TensorOptions::requires_grad_, value);
  }
  [[nodiscard]] TensorOptions pinned_memory(std::optional<bool> value) const {
    return with(&TensorOptions::pinned_memory_, value);
  }
  [[nodiscard]] TensorOptions memory_format(std::optional<MemoryFormat> format) const {
    return with(&TensorOptions::memory_format_, format);
  }
  Device device() const { return device_.value_or(Device(kCPU)); }
  TypeMeta dtype() const { return TypeMeta(dtype_.value_or(kFloat)); }
  Layout layout() const { return kStrided; }
  bool requires_grad() const { return requires_grad_.value_or(false); }
  bool has_dtype() const { return dtype_.has_value(); }
  bool has_device() const { return device_.has_value(); }
  const std::optional<ScalarType>& dtype_opt() const { return dtype_; }
  const std::optional<Device>& device_opt() const { return device_; }
  const std::optional<Layout>& layout_opt() const { return layout_; }
  const std::optional<bool>& pinned_memory_opt() const { return pinned_memory_; }
  const std::optional<MemoryFormat>& memory_format_opt() const { return memory_format_; }

 private:
  template <typename Member, typename T>
  TensorOptions with(Member TensorOptions::*member, const T& value) const {
    TensorOptions changed = *this;
    changed.*member = value;
    return changed;
  }
  std::optional<ScalarType> dtype_;
  std::optional<Device> device_;
  std::optional<Layout> layout_;
  std::optional<bool> requires_grad_;
  std::optional<bool> pinned_memory_;
  std::optional<MemoryFormat> memory_format_;
};

inline TensorOptions dtype(ScalarType type) { return TensorOptions(type); }
inline TensorOptions dtype(TypeMeta type) { return TensorOptions(type); }
template <typename T>
inline TensorOptions dtype() {
  return TensorOptions(CppTypeToScalarType<T>::value);
}
inline TensorOptions device(Device device) { return TensorOptions(device); }
inline TensorOptions layout(Layout layout) { return TensorOptions(layout); }
inline TensorOptions requires_grad(bool value = true) { return TensorOptions().requires_grad(value); }
inline TensorOptions memory_format(MemoryFormat format) { return TensorOptions(format); }

}  // namespace c10

namespace at {
using namespace c10;
namespace Reduction {
enum Reduction { None, Mean, Sum, END };
}
template <typename T>
constexpr C10_HOST_DEVICE T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}
}  // namespace at
