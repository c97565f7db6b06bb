/* PYBIND11_MODULE without pybind11: functions on tensors and plain values. */
#pragma once

#include <shadow/tensor.h>

namespace cgins_shadow {

/* How an argument of a C++ type is made from a Python object, and what its type is called. */
template <typename T, typename = void>
struct Loader {
  static_assert(!sizeof(T*), "this type of argument is not in the shadow headers; build with the real ones");
};

template <>
struct Loader<at::Tensor> {
  at::Tensor value;
  static std::string name() { return "torch.Tensor"; }
  bool load(PyObject* object, bool) {
    if (!is_tensor(object)) return false;
    retain(object);
    value = at::Tensor(Object(object));
    return true;
  }
};
template <>
struct Loader<bool> {
  bool value = false;
  static std::string name() { return "bool"; }
  bool load(PyObject* object, bool convert) { return to_bool(object, convert, &value); }
};
template <typename T>
struct Loader<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>>> {
  T value = 0;
  static std::string name() { return "int"; }
  bool load(PyObject* object, bool convert) {
    int64_t number = 0;
    if (!to_int(object, convert, &number)) return false;
    value = static_cast<T>(number);
    return static_cast<int64_t>(value) == number && (std::is_signed_v<T> || number >= 0);
  }
};
template <typename T>
struct Loader<T, std::enable_if_t<std::is_floating_point_v<T>>> {
  T value = 0;
  static std::string name() { return "float"; }
  bool load(PyObject* object, bool convert) {
    double number = 0;
    if (!to_double(object, convert, &number)) return false;
    value = static_cast<T>(number);
    return true;
  }
};
template <>
struct Loader<std::string> {
  std::string value;
  static std::string name() { return "str"; }
  bool load(PyObject* object, bool) { return to_string(object, &value); }
};
template <>
struct Loader<std::string_view> {
  std::string text;
  std::string_view value;
  static std::string name() { return "str"; }
  bool load(PyObject* object, bool) {
    const bool loaded = to_string(object, &text);
    value = text;
    return loaded;
  }
};
template <>
struct Loader<c10::Scalar> {
  c10::Scalar value;
  static std::string name() { return "typing.Union[float, int, bool]"; }
  bool load(PyObject* object, bool) {
    if (!is_python_bool(object) && !is_python_int(object) && !is_python_float(object)) return false;
    retain(object);
    value = as<c10::Scalar>(Object(object));
    return true;
  }
};
template <>
struct Loader<c10::ScalarType> {
  c10::ScalarType value = c10::kFloat;
  static std::string name() { return "torch.dtype"; }
  bool load(PyObject* object, bool) {
    int32_t number = 0;
    if (!to_dtype(object, &number)) return false;
    value = static_cast<c10::ScalarType>(number);
    return true;
  }
};
template <>
struct Loader<c10::Device> {
  c10::Device value = c10::kCPU;
  static std::string name() { return "torch.device"; }
  bool load(PyObject* object, bool) {
    int32_t type = 0, index = 0;
    if (!to_device(object, &type, &index)) return false;
    value = c10::Device(static_cast<c10::DeviceType>(type), static_cast<c10::DeviceIndex>(index));
    return true;
  }
};
template <typename T>
struct Loader<std::optional<T>> {
  std::optional<T> value;
  Loader<T> inner;
  static std::string name() { return "typing.Optional[" + Loader<T>::name() + "]"; }
  bool load(PyObject* object, bool convert) {
    if (is_none(object)) return true;
    if (!inner.load(object, convert)) return false;
    value = inner.value;
    return true;
  }
};
template <typename T>
bool load_items(PyObject* object, bool as_array_ref, bool convert, std::vector<T>* values) {
  std::vector<Object> items;
  if (!to_items(object, as_array_ref, &items)) return false;
  for (const Object& each : items) {
    Loader<T> loader;
    if (!loader.load(each.get(), convert)) return false;
    values->push_back(std::move(loader.value));
  }
  return true;
}
template <typename T>
struct Loader<std::vector<T>> {
  std::vector<T> value;
  static std::string name() { return "typing.List[" + Loader<T>::name() + "]"; }
  bool load(PyObject* object, bool convert) { return load_items(object, false, convert, &value); }
};
template <typename T>
struct Loader<c10::ArrayRef<T>> {
  std::vector<T> items;
  c10::ArrayRef<T> value;
  static std::string name() { return "typing.List[" + Loader<T>::name() + "]"; }
  bool load(PyObject* object, bool convert) {
    const bool loaded = load_items(object, true, convert, &items);
    value = items;
    return loaded;
  }
};
template <typename T>
struct Loader<c10::OptionalArrayRef<T>> {
  Loader<c10::ArrayRef<T>> inner;
  c10::OptionalArrayRef<T> value;
  static std::string name() { return "typing.Optional[" + Loader<c10::ArrayRef<T>>::name() + "]"; }
  bool load(PyObject* object, bool convert) {
    if (is_none(object)) return true;
    const bool loaded = inner.load(object, convert);
    value = inner.value;
    return loaded;
  }
};
template <typename T, size_t N>
struct Loader<std::array<T, N>> {
  std::array<T, N> value{};
  static std::string name() { return "typing.List[" + Loader<T>::name() + "]"; }
  bool load(PyObject* object, bool convert) {
    std::vector<T> items;
    if (!load_items(object, false, convert, &items) || items.size() != N) return false;
    for (size_t i = 0; i < N; ++i) value[i] = std::move(items[i]);
    return true;
  }
};
template <typename... Items>
struct Loader<std::tuple<Items...>> {
  std::tuple<Items...> value;
  static std::string name() { return "tuple"; }
  bool load(PyObject* object, bool convert) { return load(object, convert, std::index_sequence_for<Items...>()); }
  template <size_t... I>
  bool load(PyObject* object, bool convert, std::index_sequence<I...>) {
    std::vector<Object> items;
    if (!to_items(object, false, &items) || items.size() != sizeof...(Items)) return false;
    std::tuple<Loader<Items>...> loaders;
    if (!(std::get<I>(loaders).load(items[I].get(), convert) && ...)) return false;
    value = {std::get<I>(loaders).value...};
    return true;
  }
};

template <typename T>
using Bare = std::remove_cv_t<std::remove_reference_t<T>>;

template <typename Callable, typename R, typename... A>
struct Invoker {
  static Object invoke(void* callable, PyObject* const* arguments, bool convert, bool* matched) {
    return with(callable, arguments, convert, matched, std::index_sequence_for<A...>());
  }
  template <size_t... I>
  static Object with(void* callable, [[maybe_unused]] PyObject* const* arguments, [[maybe_unused]] bool convert,
                     bool* matched, std::index_sequence<I...>) {
    std::tuple<Loader<Bare<A>>...> loaders;
    if (!(std::get<I>(loaders).load(arguments[I], convert) && ...)) return Object();
    *matched = true;
    Callable& function = *static_cast<Callable*>(callable);
    if constexpr (std::is_void_v<R>) {
      function(static_cast<A>(std::get<I>(loaders).value)...);
      return none();
    } else {
      return to_object(function(static_cast<A>(std::get<I>(loaders).value)...));
    }
  }
  static Function describe(Callable callable) {
    Function function;
    function.parameters = {Parameter{"", Loader<Bare<A>>::name(), Object()}...};
    if constexpr (std::is_void_v<R>) function.result = "None";
    else if constexpr (std::is_same_v<Bare<R>, at::Tensor>) function.result = "torch.Tensor";
    else function.result = "object";
    function.invoke = &invoke;
    function.callable = new Callable(std::move(callable));
    return function;
  }
};
template <typename R, typename... A>
Function describe(R (*function)(A...)) {
  return Invoker<R (*)(A...), R, A...>::describe(function);
}
template <typename Callable, typename R, typename... A>
Function describe_member(Callable callable, R (Callable::*)(A...) const) {
  return Invoker<Callable, R, A...>::describe(std::move(callable));
}
template <typename Callable, typename R, typename... A>
Function describe_member(Callable callable, R (Callable::*)(A...)) {
  return Invoker<Callable, R, A...>::describe(std::move(callable));
}
template <typename Callable, typename = decltype(&Callable::operator())>
Function describe(Callable callable) {
  return describe_member(std::move(callable), &Callable::operator());
}

}  // namespace cgins_shadow

namespace pybind11 {

struct arg_v {
  const char* name;
  cgins_shadow::Object standard;
};
struct arg {
  explicit arg(const char* name) : name(name) {}
  arg& noconvert(bool = true) { return *this; }
  template <typename T>
  arg_v operator=(const T& standard) const {
    return {name, cgins_shadow::to_object(standard)};
  }
  const char* name;
};
namespace literals {
inline arg operator""_a(const char* name, size_t) { return arg(name); }
}  // namespace literals
/* Python's lock is kept: calls of torch need it. */
struct gil_scoped_release {
  gil_scoped_release() {}
};
struct gil_scoped_acquire {
  gil_scoped_acquire() {}
};
template <typename...>
struct call_guard {};
inline cgins_shadow::Object none() { return cgins_shadow::none(); }

class module_ {
 public:
  explicit module_(cgins_shadow::Module& module) : module_object_(module) {}
  template <typename Callable, typename... Extras>
  module_& def(const char* name, Callable&& callable, const Extras&... extras) {
    cgins_shadow::Function function = cgins_shadow::describe(std::forward<Callable>(callable));
    function.name = name;
    size_t next = 0;
    (extra(function, next, extras), ...);
    module_object_.define(std::move(function));
    return *this;
  }
  std::string& doc() { return doc_; }

 private:
  static void extra(cgins_shadow::Function& function, size_t&, const char* doc) { function.doc = doc; }
  static void extra(cgins_shadow::Function& function, size_t& next, const arg& named) {
    function.parameters.at(next++).name = named.name;
  }
  static void extra(cgins_shadow::Function& function, size_t& next, const arg_v& named) {
    function.parameters.at(next).standard = named.standard;
    function.parameters.at(next++).name = named.name;
  }
  template <typename... Guards>
  static void extra(cgins_shadow::Function&, size_t&, const call_guard<Guards...>&) {}
  cgins_shadow::Module& module_object_;
  std::string doc_;
};
using module = module_;

}  // namespace pybind11

namespace torch {
namespace py = pybind11;
template <typename Callable>
Callable&& wrap_pybind_function(Callable&& callable) {
  return std::forward<Callable>(callable);
}
}  // namespace torch
namespace py = pybind11;

#define CGINS_SHADOW_JOIN_(a, b) a##b
#define CGINS_SHADOW_JOIN(a, b) CGINS_SHADOW_JOIN_(a, b)
#define PYBIND11_MODULE(name, variable, ...)                                                       \
  static void CGINS_SHADOW_JOIN(cgins_shadow_bind_, name)(::pybind11::module_&);                   \
  extern "C" __attribute__((visibility("default"))) ::cgins_shadow::PyObject* CGINS_SHADOW_JOIN(PyInit_, name)() { \
    return ::cgins_shadow::create_module(C10_STRINGIZE(name), [](::cgins_shadow::Module& object) { \
      ::pybind11::module_ module(object);                                                          \
      CGINS_SHADOW_JOIN(cgins_shadow_bind_, name)(module);                                         \
    });                                                                                            \
  }                                                                                                \
  static void CGINS_SHADOW_JOIN(cgins_shadow_bind_, name)(::pybind11::module_ & variable)
