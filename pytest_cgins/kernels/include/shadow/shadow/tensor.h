/* at::Tensor: what is not an operator is here; operators are generated into two files by the build. */
#pragma once

#include <shadow/accessor.h>
#include <tuple>

namespace at {
class Tensor;
struct Generator {};
}  // namespace at

namespace cgins_shadow {

inline Object to_object(bool value) { return from_bool(value); }
inline Object to_object(int value) { return from_int(value); }
inline Object to_object(unsigned value) { return from_int(value); }
inline Object to_object(int64_t value) { return from_int(value); }
inline Object to_object(long long value) { return from_int(value); }
inline Object to_object(size_t value) { return from_int(static_cast<int64_t>(value)); }
inline Object to_object(double value) { return from_double(value); }
inline Object to_object(float value) { return from_double(value); }
inline Object to_object(std::string_view value) { return from_string(value.data(), value.size()); }
inline Object to_object(const std::string& value) { return from_string(value.data(), value.size()); }
inline Object to_object(const char* value) { return to_object(std::string_view(value)); }
inline Object to_object(const Object& value) { return value; }
inline Object to_object(c10::nullopt_t) { return none(); }
inline Object to_object(c10::ScalarType type) { return from_dtype(static_cast<int32_t>(type)); }
inline Object to_object(const c10::Device& device) {
  return from_device(static_cast<int32_t>(device.type()), device.index());
}
inline Object to_object(c10::DeviceType type) { return to_object(c10::Device(type)); }
inline Object to_object(c10::Layout) { return from_name("strided"); }
inline Object to_object(c10::MemoryFormat format) { return from_name(toString(format).c_str()); }
inline Object to_object(const at::Generator&) { return none(); }
inline Object to_object(const c10::Scalar& value) {
  return value.isFloatingPoint()      ? from_double(value.toDouble())
         : value.isBoolean() ? from_bool(value.toBool())
                                      : from_int(value.toLong());
}
inline Object to_object(const at::Tensor& tensor);
template <typename T>
Object to_object(const std::vector<T>& items);
template <typename T>
Object to_object(c10::ArrayRef<T> items);
template <typename T>
Object to_object(const c10::OptionalArrayRef<T>& items);
template <typename T, size_t N>
Object to_object(const std::array<T, N>& items);
template <typename... Items>
Object to_object(const std::tuple<Items...>& items);
template <typename A, typename B>
Object to_object(const std::pair<A, B>& items);
template <typename T>
Object to_object(const std::optional<T>& value) {
  return value.has_value() ? to_object(*value) : none();
}

/* A result of a call as a C++ value. */
template <typename T>
struct Result;
template <typename T>
T as(Object object) {
  return Result<T>::of(std::move(object));
}

}  // namespace cgins_shadow

namespace at {

using TensorList = ArrayRef<Tensor>;
using ITensorListRef = ArrayRef<Tensor>;

namespace indexing {
using c10::nullopt_t;
struct EllipsisIndexType {};
constexpr EllipsisIndexType Ellipsis{};
constexpr c10::nullopt_t None{c10::nullopt};
class Slice {
 public:
  Slice(std::optional<int64_t> start = {}, std::optional<int64_t> stop = {}, std::optional<int64_t> step = {})
      : object(cgins_shadow::slice(cgins_shadow::to_object(start), cgins_shadow::to_object(stop),
                                   cgins_shadow::to_object(step))) {}
  cgins_shadow::Object object;
};
struct TensorIndex {
  TensorIndex(c10::nullopt_t) : object(cgins_shadow::none()) {}
  TensorIndex(EllipsisIndexType) : object(cgins_shadow::ellipsis()) {}
  TensorIndex(const char*) : object(cgins_shadow::ellipsis()) {}
  TensorIndex(const Slice& slice) : object(slice.object) {}
  TensorIndex(const Tensor& tensor) : object(cgins_shadow::to_object(tensor)) {}
  template <typename T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
  TensorIndex(T value) : object(cgins_shadow::to_object(value)) {}
  cgins_shadow::Object object;
};
}  // namespace indexing

/* A deprecated name of a tensor's element type that AT_DISPATCH still takes. */
struct DeprecatedTypeProperties {
  ScalarType type;
  ScalarType scalarType() const { return type; }
  std::string str() const { return toString(); }
  std::string toString() const { return std::string(c10::toString(type)) + "Type"; }
};

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(cgins_shadow::Object object) : impl_(cgins_shadow::new_tensor(std::move(object))) {}
  Tensor(const Tensor& other) : impl_(other.impl_) {
    if (impl_ != nullptr) __atomic_add_fetch(&impl_->references, 1, __ATOMIC_RELAXED);
  }
  Tensor(Tensor&& other) noexcept : impl_(std::exchange(other.impl_, nullptr)) {}
  Tensor& operator=(const Tensor& other) & {
    Tensor copy(other);
    std::swap(impl_, copy.impl_);
    return *this;
  }
  Tensor& operator=(Tensor&& other) & noexcept {
    std::swap(impl_, other.impl_);
    return *this;
  }
  /* x[0] = 1 writes to the memory of x. */
  Tensor& operator=(const Tensor& other) && { return assign(cgins_shadow::to_object(other)); }
  Tensor& operator=(Tensor&& other) && { return assign(cgins_shadow::to_object(other)); }
  Tensor& operator=(const Scalar& value) && { return assign(cgins_shadow::to_object(value)); }
  ~Tensor() {
    if (impl_ != nullptr && __atomic_sub_fetch(&impl_->references, 1, __ATOMIC_ACQ_REL) == 0)
      cgins_shadow::delete_tensor(impl_);
  }

  bool defined() const { return impl_ != nullptr; }
  void reset() { *this = Tensor(); }
  bool is_same(const Tensor& other) const { return object() == other.object(); }
  int64_t dim() const { return static_cast<int64_t>(impl().sizes.size()); }
  int64_t ndimension() const { return dim(); }
  int64_t numel() const { return impl().numel; }
  IntArrayRef sizes() const { return impl().sizes; }
  IntArrayRef strides() const {
    TORCH_CHECK(impl().strided, "strides() of a sparse tensor");
    return impl().strides;
  }
  int64_t size(int64_t index) const { return impl().sizes[wrapped(index)]; }
  int64_t stride(int64_t index) const { return strides()[wrapped(index)]; }
  ScalarType scalar_type() const { return static_cast<ScalarType>(impl().dtype); }
  caffe2::TypeMeta dtype() const { return caffe2::TypeMeta(scalar_type()); }
  DeprecatedTypeProperties type() const { return {scalar_type()}; }
  Device device() const {
    return Device(static_cast<DeviceType>(impl().device_type), static_cast<DeviceIndex>(impl().device_index));
  }
  int64_t get_device() const { return device().index(); }
  bool is_cuda() const { return device().is_cuda(); }
  bool is_cpu() const { return device().is_cpu(); }
  bool is_meta() const { return device().is_meta(); }
  Layout layout() const {
    TORCH_CHECK(impl().strided, "layout() of a sparse tensor is not in the shadow headers; build with the real ones");
    return kStrided;
  }
  TensorOptions options() const { return TensorOptions(scalar_type()).device(device()).layout(layout()); }
  bool is_floating_point() const { return isFloatingType(scalar_type()); }
  bool is_complex() const { return isComplexType(scalar_type()); }
  bool is_sparse() const { return !impl().strided; }
  size_t itemsize() const { return elementSize(scalar_type()); }
  int64_t element_size() const { return static_cast<int64_t>(itemsize()); }
  size_t nbytes() const { return itemsize() * static_cast<size_t>(numel()); }
  bool is_contiguous(MemoryFormat format = MemoryFormat::Contiguous) const {
    if (format != MemoryFormat::Contiguous) return asked<bool>("is_contiguous", {cgins_shadow::to_object(format)});
    if (!impl().strided) return false;
    int64_t expected = 1;
    for (size_t i = impl().sizes.size(); i-- > 0;) {
      if (impl().sizes[i] == 1) continue;
      if (impl().strides[i] != expected && numel() != 0) return false;
      expected *= impl().sizes[i];
    }
    return true;
  }
  Tensor contiguous(MemoryFormat format = MemoryFormat::Contiguous) const {
    if (is_contiguous(format)) return *this;
    static cgins_shadow::Operator op("contiguous", "default", {"memory_format"});
    const cgins_shadow::Object arguments[] = {cgins_shadow::to_object(*this), cgins_shadow::to_object(format)};
    return Tensor(cgins_shadow::call(op, arguments, 2));
  }
  int64_t storage_offset() const { return asked<int64_t>("storage_offset"); }
  bool requires_grad() const { return attribute<bool>("requires_grad"); }
  const Tensor& requires_grad_(bool value = true) const {
    asked<Tensor>("requires_grad_", {cgins_shadow::to_object(value)});
    return *this;
  }
  Tensor grad() const { return attribute<Tensor>("grad"); }
  Tensor toType(ScalarType type) const { return asked<Tensor>("to", {cgins_shadow::to_object(type)}); }
  Tensor cpu() const { return asked<Tensor>("cpu"); }
  Tensor cuda() const { return asked<Tensor>("cuda"); }

  void* data_ptr() const {
    if (!impl().has_data) asked<int64_t>("data_ptr");  // raises what torch raises
    return impl().data;
  }
  void* mutable_data_ptr() const { return data_ptr(); }
  const void* const_data_ptr() const { return data_ptr(); }
  template <typename T>
  T* data_ptr() const {
    constexpr ScalarType wanted = CppTypeToScalarType<std::remove_const_t<T>>::value;
    TORCH_CHECK(scalar_type() == wanted, "expected scalar type ", toString(wanted), " but found ",
                toString(scalar_type()));
    return static_cast<T*>(data_ptr());
  }
  template <typename T>
  T* mutable_data_ptr() const {
    return data_ptr<T>();
  }
  template <typename T>
  const std::remove_const_t<T>* const_data_ptr() const {
    return data_ptr<std::remove_const_t<T>>();
  }
  template <typename T>
  T* data() const {
    return data_ptr<T>();
  }
  Scalar item() const { return asked<Scalar>("item"); }
  template <typename T>
  T item() const {
    return item().to<T>();
  }
  template <typename T, size_t N>
  TensorAccessor<T, N> accessor() const& {
    check_dim(N);
    return TensorAccessor<T, N>(data_ptr<T>(), impl().sizes.data(), impl().strides.data());
  }
  template <typename T, size_t N, template <typename> class PtrTraits = DefaultPtrTraits>
  PackedTensorAccessor32<T, N, PtrTraits> packed_accessor32() const& {
    check_dim(N);
    TORCH_CHECK(numel() <= INT32_MAX,
                "numel needs to be smaller than int32_t max; otherwise, please use packed_accessor64");
    return {data_ptr<T>(), impl().sizes.data(), impl().strides.data()};
  }
  template <typename T, size_t N, template <typename> class PtrTraits = DefaultPtrTraits>
  PackedTensorAccessor64<T, N, PtrTraits> packed_accessor64() const& {
    check_dim(N);
    return {data_ptr<T>(), impl().sizes.data(), impl().strides.data()};
  }

  Tensor operator[](int64_t index) const { return at_key(cgins_shadow::to_object(index)); }
  Tensor operator[](const Scalar& index) const { return at_key(cgins_shadow::to_object(index)); }
  Tensor operator[](const Tensor& index) const { return at_key(cgins_shadow::to_object(index)); }
  Tensor index(ArrayRef<indexing::TensorIndex> indices) const { return at_key(key(indices)); }
  Tensor index(std::initializer_list<indexing::TensorIndex> indices) const {
    return index(ArrayRef<indexing::TensorIndex>(indices));
  }
  Tensor& index_put_(std::initializer_list<indexing::TensorIndex> indices, const Tensor& values) {
    cgins_shadow::set_item(object(), key(indices), cgins_shadow::to_object(values));
    return *this;
  }
  Tensor& index_put_(std::initializer_list<indexing::TensorIndex> indices, const Scalar& value) {
    cgins_shadow::set_item(object(), key(indices), cgins_shadow::to_object(value));
    return *this;
  }
  Tensor& operator+=(const Tensor& other);
  Tensor& operator-=(const Tensor& other);
  Tensor& operator*=(const Tensor& other);
  Tensor& operator/=(const Tensor& other);
  Tensor& operator+=(const Scalar& other);
  Tensor& operator-=(const Scalar& other);
  Tensor& operator*=(const Scalar& other);
  Tensor& operator/=(const Scalar& other);
  Tensor operator-() const;

#include <shadow_methods.h>

  cgins_shadow::PyObject* object() const { return impl_ == nullptr ? nullptr : impl_->object; }
  void refresh() const { cgins_shadow::refresh(impl_); }

 private:
  const cgins_shadow::TensorImpl& impl() const {
    TORCH_CHECK(impl_ != nullptr, "tensor does not have a device");
    return *impl_;
  }
  size_t wrapped(int64_t index) const {
    const int64_t rank = dim(), bound = rank > 0 ? rank : 1;
    TORCH_CHECK_INDEX(rank > 0, "Dimension specified as ", index, " but tensor has no dimensions");
    TORCH_CHECK_INDEX(index >= -bound && index < bound, "Dimension out of range (expected to be in range of [", -bound,
                      ", ", bound - 1, "], but got ", index, ")");
    return static_cast<size_t>(index < 0 ? index + rank : index);
  }
  void check_dim(size_t expected) const {
    TORCH_CHECK(dim() == static_cast<int64_t>(expected), "TensorAccessor expected ", expected, " dims but tensor has ",
                dim());
  }
  template <typename T>
  T attribute(const char* name) const {
    return cgins_shadow::as<T>(cgins_shadow::attribute(impl().object, name));
  }
  template <typename T>
  T asked(const char* name, const std::vector<cgins_shadow::Object>& arguments = {}) const {
    return cgins_shadow::as<T>(
        cgins_shadow::call_method(impl().object, name, arguments.data(), arguments.size()));
  }
  static cgins_shadow::Object key(ArrayRef<indexing::TensorIndex> indices) {
    std::vector<cgins_shadow::Object> items;
    for (const auto& index : indices) items.push_back(index.object);
    return cgins_shadow::tuple(std::move(items));
  }
  Tensor at_key(const cgins_shadow::Object& key) const { return Tensor(cgins_shadow::item(impl().object, key)); }
  Tensor& assign(const cgins_shadow::Object& value) {
    cgins_shadow::set_item(impl().object, cgins_shadow::ellipsis(), value);
    return *this;
  }
  cgins_shadow::TensorImpl* impl_ = nullptr;
};

}  // namespace at

namespace cgins_shadow {

inline Object to_object(const at::Tensor& tensor) {
  if (!tensor.defined()) return none();
  retain(tensor.object());
  return Object(tensor.object());
}
template <typename Items>
Object to_list(const Items& items) {
  std::vector<Object> objects;
  for (const auto& each : items) objects.push_back(to_object(each));
  return list(std::move(objects));
}
template <typename T>
Object to_object(const std::vector<T>& items) {
  return to_list(items);
}
template <typename T>
Object to_object(c10::ArrayRef<T> items) {
  return to_list(items);
}
template <typename T>
Object to_object(const c10::OptionalArrayRef<T>& items) {
  return items.has_value() ? to_list(*items) : none();
}
template <typename T, size_t N>
Object to_object(const std::array<T, N>& items) {
  return to_list(items);
}
template <typename... Items>
Object to_object(const std::tuple<Items...>& items) {
  return std::apply([](const auto&... each) { return tuple(std::vector<Object>{to_object(each)...}); }, items);
}
template <typename A, typename B>
Object to_object(const std::pair<A, B>& items) {
  return tuple({to_object(items.first), to_object(items.second)});
}

template <>
struct Result<void> {
  static void of(const Object&) {}
};
template <>
struct Result<at::Tensor> {
  static at::Tensor of(Object object) { return at::Tensor(std::move(object)); }
};
template <>
struct Result<bool> {
  static bool of(const Object& object) {
    bool value = false;
    to_bool(object.get(), true, &value);
    return value;
  }
};
template <>
struct Result<int64_t> {
  static int64_t of(const Object& object) {
    int64_t value = 0;
    to_int(object.get(), true, &value);
    return value;
  }
};
template <>
struct Result<double> {
  static double of(const Object& object) {
    double value = 0;
    to_double(object.get(), true, &value);
    return value;
  }
};
template <>
struct Result<c10::ScalarType> {
  static c10::ScalarType of(const Object& object) {
    int32_t value = 0;
    if (!to_dtype(object.get(), &value)) fail("RuntimeError", "this element type is not in the shadow headers");
    return static_cast<c10::ScalarType>(value);
  }
};
template <>
struct Result<c10::Scalar> {
  static c10::Scalar of(const Object& object) {
    if (is_python_bool(object.get())) return as<bool>(object);
    if (is_python_int(object.get())) return as<int64_t>(object);
    TORCH_CHECK(is_python_float(object.get()), "complex numbers are not in the shadow headers; build with the real ones");
    return as<double>(object);
  }
};
template <typename T>
struct Result<std::vector<T>> {
  static std::vector<T> of(const Object& object) {
    std::vector<Object> items;
    std::vector<T> values;
    to_items(object.get(), false, &items);
    for (Object& each : items) values.push_back(as<T>(std::move(each)));
    return values;
  }
};
template <typename... Items>
struct Result<std::tuple<Items...>> {
  static std::tuple<Items...> of(const Object& object) {
    return with(object, std::index_sequence_for<Items...>());
  }
  template <size_t... I>
  static std::tuple<Items...> with(const Object& object, std::index_sequence<I...>) {
    std::vector<Object> items;
    to_items(object.get(), false, &items);
    return {as<Items>(items.at(I))...};
  }
};

template <typename... Arguments>
at::Tensor operate(Operator& op, const Arguments&... arguments) {
  const Object objects[] = {to_object(arguments)...};
  return as<at::Tensor>(call(op, objects, sizeof...(Arguments)));
}

}  // namespace cgins_shadow

namespace at {

#define CGINS_SHADOW_BINARY(symbol, name)                                                         \
  inline Tensor operator symbol(const Tensor& a, const Tensor& b) {                               \
    static cgins_shadow::Operator op(name, "Tensor");                                             \
    return cgins_shadow::operate(op, a, b);                                                       \
  }                                                                                               \
  inline Tensor operator symbol(const Tensor& a, const Scalar& b) {                               \
    static cgins_shadow::Operator op(name, "Scalar");                                             \
    return cgins_shadow::operate(op, a, b);                                                       \
  }
CGINS_SHADOW_BINARY(+, "add")
CGINS_SHADOW_BINARY(-, "sub")
CGINS_SHADOW_BINARY(*, "mul")
CGINS_SHADOW_BINARY(/, "div")
CGINS_SHADOW_BINARY(==, "eq")
CGINS_SHADOW_BINARY(!=, "ne")
CGINS_SHADOW_BINARY(<, "lt")
CGINS_SHADOW_BINARY(<=, "le")
CGINS_SHADOW_BINARY(>, "gt")
CGINS_SHADOW_BINARY(>=, "ge")
#undef CGINS_SHADOW_BINARY
inline Tensor operator+(const Scalar& a, const Tensor& b) { return b + a; }
inline Tensor operator*(const Scalar& a, const Tensor& b) { return b * a; }
inline Tensor operator-(const Scalar& a, const Tensor& b) {
  static cgins_shadow::Operator op("rsub", "Scalar");
  return cgins_shadow::operate(op, b, a);
}
inline Tensor operator/(const Scalar& a, const Tensor& b) {
  static cgins_shadow::Operator op("reciprocal", "default");
  return cgins_shadow::operate(op, b) * a;
}
inline Tensor Tensor::operator-() const {
  static cgins_shadow::Operator op("neg", "default");
  return cgins_shadow::operate(op, *this);
}
#define CGINS_SHADOW_IN_PLACE(symbol, name)                    \
  inline Tensor& Tensor::operator symbol(const Tensor& other) { \
    static cgins_shadow::Operator op(name, "Tensor");          \
    cgins_shadow::operate(op, *this, other);                   \
    return *this;                                              \
  }                                                            \
  inline Tensor& Tensor::operator symbol(const Scalar& other) { \
    static cgins_shadow::Operator op(name, "Scalar");          \
    cgins_shadow::operate(op, *this, other);                   \
    return *this;                                              \
  }
CGINS_SHADOW_IN_PLACE(+=, "add_")
CGINS_SHADOW_IN_PLACE(-=, "sub_")
CGINS_SHADOW_IN_PLACE(*=, "mul_")
CGINS_SHADOW_IN_PLACE(/=, "div_")
#undef CGINS_SHADOW_IN_PLACE

}  // namespace at

#include <shadow_functions.h>
