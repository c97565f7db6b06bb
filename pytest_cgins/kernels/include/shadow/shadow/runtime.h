/* What the shadow headers ask of Python, without Python's headers: runtime.cpp is compiled beside the kernel.
 *
 * Tensors are held as the torch.Tensor objects that they are in Python, and torch's operators are called as
 * torch.ops.aten.NAME.OVERLOAD: their schemas are the same as those of the C++ functions, in every version.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

struct _object;

namespace cgins_shadow {

using PyObject = ::_object;

void retain(PyObject* object);
void release(PyObject* object);

/* An owned reference to a Python object; null for none. */
class Object {
 public:
  Object() = default;
  explicit Object(PyObject* owned) : object_(owned) {}
  Object(const Object& other) : object_(other.object_) { retain(object_); }
  Object(Object&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Object& operator=(Object other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Object() { release(object_); }
  PyObject* get() const { return object_; }
  PyObject* take() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

/* A tensor, shared by the copies of an at::Tensor. All that may be asked for inside of a parallel region is
 * read once, while the thread has Python's lock. */
struct TensorImpl {
  long references;
  PyObject* object;
  int32_t dtype;         // c10::ScalarType
  int32_t device_type;   // c10::DeviceType
  int32_t device_index;
  bool strided;
  bool has_data;
  void* data;
  int64_t numel;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

TensorImpl* new_tensor(Object object);
void refresh(TensorImpl* tensor);
void delete_tensor(TensorImpl* tensor);
bool is_tensor(PyObject* object);

/* One overload of an operator, looked up at its first call; the last `keywords` arguments go by name. */
struct Operator {
  const char* name;
  const char* overload;
  std::vector<const char*> keywords;
  PyObject* callable = nullptr;
  PyObject* keyword_tuple = nullptr;
  Operator(const char* name, const char* overload, std::vector<const char*> keywords = {})
      : name(name), overload(overload), keywords(std::move(keywords)) {}
};
Object call(Operator& op, const Object* arguments, size_t count);
Object call_method(PyObject* self, const char* name, const Object* arguments, size_t count);
/* torch.A.B…(arguments) by a dotted path below the module torch. */
Object call_torch(const char* path, const Object* arguments, size_t count);
Object attribute(PyObject* self, const char* name);
Object item(PyObject* self, const Object& key);
void set_item(PyObject* self, const Object& key, const Object& value);

Object none();
Object ellipsis();
Object from_bool(bool value);
Object from_int(int64_t value);
Object from_double(double value);
Object from_string(const char* data, size_t size);
Object from_dtype(int32_t dtype);
Object from_device(int32_t type, int32_t index);
Object from_name(const char* name); /* an object of the module torch: "strided", "channels_last" */
Object list(std::vector<Object> items);
Object tuple(std::vector<Object> items);
Object slice(const Object& start, const Object& stop, const Object& step);

/* Conversions of arguments, as strict as pybind11's: false, without an exception, if there is none. */
bool is_none(PyObject* object);
bool to_bool(PyObject* object, bool convert, bool* value);
bool to_int(PyObject* object, bool convert, int64_t* value);
bool to_double(PyObject* object, bool convert, double* value);
bool to_string(PyObject* object, std::string* value);
bool to_dtype(PyObject* object, int32_t* value);
bool to_device(PyObject* object, int32_t* type, int32_t* index);
bool is_python_bool(PyObject* object);
bool is_python_int(PyObject* object);
bool is_python_float(PyObject* object);
bool to_items(PyObject* object, bool as_array_ref, std::vector<Object>* items); /* lists, tuples, sequences */

/* A Python exception, or one to be: `kind` names its type among Python's builtins. */
class Error : public std::exception {
 public:
  Error(const char* kind, std::string message) : kind_(kind), message_(std::move(message)) {}
  Error(Object value, std::string message) : message_(std::move(message)), value_(std::move(value)) {}
  const char* what() const noexcept override { return message_.c_str(); }
  const char* what_without_backtrace() const noexcept { return message_.c_str(); }
  std::string msg() const { return message_; }
  const char* kind() const { return kind_; }
  const Object& value() const { return value_; }

 private:
  const char* kind_ = "RuntimeError";
  std::string message_;
  Object value_;
};

[[noreturn]] void fail(const char* kind, std::string message);
void warn(const std::string& message);

struct Parameter {
  std::string name;
  std::string type;
  Object standard; /* its default, or null */
};

/* A bound function: `invoke` returns null with `*matched` false if the arguments are not of its types. */
struct Function {
  std::string name;
  std::string doc;
  std::string result;
  std::vector<Parameter> parameters;
  Object (*invoke)(void* callable, PyObject* const* arguments, bool convert, bool* matched);
  void* callable;
};

class Module {
 public:
  explicit Module(PyObject* object) : object_(object) {}
  void define(Function function); /* a further overload where the name is taken */
  PyObject* object() const { return object_; }

 private:
  PyObject* object_;
};

PyObject* create_module(const char* name, void (*bind)(Module&));

/* TORCH_LIBRARY: carried out when the module is made; where there is no module, while the library is loaded. */
struct Registration {
  const char* space;
  const char* key; /* dispatch key, "" for definitions */
  void (*body)(const Registration& self);
};
void add_registration(Registration registration, bool has_module);
void define_operator(const char* space, const std::string& schema);
void implement_operator(const char* space, const char* key, const std::string& name, Function function);

}  // namespace cgins_shadow
