/* The part of the shadow headers that knows Python; compiled once for a kernel, by the C++ compiler. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <shadow/runtime.h>

#include <memory>
#include <stdexcept>

namespace cgins_shadow {
namespace {

// In the order of c10::ScalarType of scalar_type.h.
const char* const DTYPES[] = {"uint8",     "int8",       "int16",    "int32",         "int64",
                              "float16",   "float32",    "float64",  "complex32",     "complex64",
                              "complex128", "bool",      "bfloat16", "float8_e5m2",   "float8_e4m3fn",
                              "uint16",    "uint32",     "uint64"};
constexpr int DTYPE_COUNT = sizeof(DTYPES) / sizeof(*DTYPES);
const char* const DEVICES[] = {"cpu", "cuda", "meta"};

struct Torch {
  PyObject* module;
  PyObject* tensor_type;
  PyObject* dtype_type;
  PyObject* device_type;
  PyObject* aten;
  PyObject* dtypes[DTYPE_COUNT];
  /* Names, made once: */
  PyObject *shape, *stride, *data_ptr, *dtype, *is_cpu, *is_cuda, *get_device;
};

/* Owned references stay until the process ends, as the library does. */
const Torch& torch();

[[noreturn]] void raise_pending() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback != nullptr) PyException_SetTraceback(value, traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  std::string message;
  if (PyObject* text = PyObject_Str(value)) {
    if (const char* utf8 = PyUnicode_AsUTF8(text)) message = utf8;
    Py_DECREF(text);
  }
  PyErr_Clear();
  throw Error(Object(value), message);
}

Object owned(PyObject* object) {
  if (object == nullptr) raise_pending();
  return Object(object);
}

void need_lock() {
  if (!PyGILState_Check())
    throw std::runtime_error(
        "a call of torch in a thread of the kernel's own is not in the shadow headers; build with the real ones");
}

const Torch& torch() {
  static const Torch* known = [] {
    auto* made = new Torch{};
    made->module = owned(PyImport_ImportModule("torch")).take();
    made->tensor_type = attribute(made->module, "Tensor").take();
    made->dtype_type = attribute(made->module, "dtype").take();
    made->device_type = attribute(made->module, "device").take();
    made->aten = attribute(attribute(made->module, "ops").get(), "aten").take();
    for (int i = 0; i < DTYPE_COUNT; ++i) {
      made->dtypes[i] = PyObject_GetAttrString(made->module, DTYPES[i]);
      PyErr_Clear();  // an older torch has fewer
    }
    made->shape = PyUnicode_InternFromString("shape");
    made->stride = PyUnicode_InternFromString("stride");
    made->data_ptr = PyUnicode_InternFromString("data_ptr");
    made->dtype = PyUnicode_InternFromString("dtype");
    made->is_cpu = PyUnicode_InternFromString("is_cpu");
    made->is_cuda = PyUnicode_InternFromString("is_cuda");
    made->get_device = PyUnicode_InternFromString("get_device");
    return made;
  }();
  return *known;
}

void find_device(TensorImpl* tensor) {
  PyObject* object = tensor->object;
  const Torch& names = torch();
  const bool on_cpu = owned(PyObject_GetAttr(object, names.is_cpu)).get() == Py_True;
  const bool on_cuda = !on_cpu && owned(PyObject_GetAttr(object, names.is_cuda)).get() == Py_True;
  tensor->device_type = on_cuda ? 1 : 0;
  tensor->device_index = -1;
  if (on_cuda) {
    const Object index = owned(PyObject_CallMethodNoArgs(object, names.get_device));
    tensor->device_index = static_cast<int32_t>(PyLong_AsLong(index.get()));
  } else if (!on_cpu &&
             !to_device(attribute(object, "device").get(), &tensor->device_type, &tensor->device_index)) {
    fail("RuntimeError", "a tensor's device is not in the shadow headers; build with the real ones");
  }
}

std::vector<int64_t> integers(const Object& sequence) {
  std::vector<int64_t> values(PyTuple_GET_SIZE(sequence.get()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(sequence.get(), i));
    if (values[i] == -1 && PyErr_Occurred()) raise_pending();
  }
  return values;
}

}  // namespace

void retain(PyObject* object) {
  if (object == nullptr) return;
  need_lock();
  Py_INCREF(object);
}

void release(PyObject* object) {
  // Without Python's lock, or after its end, a leak is all that is safe.
  if (object != nullptr && Py_IsInitialized() && PyGILState_Check()) Py_DECREF(object);
}

/* Views of sizes stay valid where nothing has changed. */
static void assign(std::vector<int64_t>* kept, std::vector<int64_t> now) {
  if (*kept != now) *kept = std::move(now);
}

void refresh(TensorImpl* tensor) {
  need_lock();
  PyObject* object = tensor->object;
  const Torch& names = torch();
  assign(&tensor->sizes, integers(owned(PyObject_GetAttr(object, names.shape))));
  tensor->numel = 1;
  for (int64_t size : tensor->sizes) tensor->numel *= size;
  const Object strides(PyObject_CallMethodNoArgs(object, names.stride));
  PyErr_Clear();  // a sparse tensor has none
  tensor->strided = static_cast<bool>(strides);
  assign(&tensor->strides, tensor->strided ? integers(strides) : std::vector<int64_t>());
  const Object pointer(tensor->strided ? PyObject_CallMethodNoArgs(object, names.data_ptr) : nullptr);
  PyErr_Clear();  // a meta tensor has none
  tensor->has_data = static_cast<bool>(pointer);
  tensor->data = tensor->has_data ? PyLong_AsVoidPtr(pointer.get()) : nullptr;
  if (!to_dtype(owned(PyObject_GetAttr(object, names.dtype)).get(), &tensor->dtype))
    fail("RuntimeError", "a tensor's element type is not in the shadow headers; build with the real ones");
  find_device(tensor);
}

TensorImpl* new_tensor(Object object) {
  if (!object || object.get() == Py_None) return nullptr;
  if (!is_tensor(object.get())) fail("TypeError", "a tensor was expected from torch");
  auto made = std::make_unique<TensorImpl>();
  made->references = 1;
  made->object = object.get();
  refresh(made.get());
  object.take();
  return made.release();
}

void delete_tensor(TensorImpl* tensor) {
  release(tensor->object);
  delete tensor;
}

bool is_tensor(PyObject* object) { return PyObject_IsInstance(object, torch().tensor_type) == 1; }

Object call(Operator& op, const Object* arguments, size_t count) {
  need_lock();
  if (op.callable == nullptr) {
    const Object overload = attribute(attribute(torch().aten, op.name).get(), op.overload);
    op.callable = PyObject_GetAttrString(overload.get(), "_op");  // without a Python function around it
    PyErr_Clear();
    if (op.callable == nullptr) op.callable = Object(overload).take();
    if (!op.keywords.empty()) {
      std::vector<Object> names;
      for (const char* name : op.keywords) names.push_back(owned(PyUnicode_InternFromString(name)));
      op.keyword_tuple = tuple(std::move(names)).take();
    }
  }
  // Keyword-only arguments that are None are the defaults; leaving all of them out saves time.
  const size_t positional = count - op.keywords.size();
  bool plain = true;
  for (size_t i = positional; i < count; ++i) plain = plain && arguments[i].get() == Py_None;
  std::vector<PyObject*> borrowed(count + 1);
  for (size_t i = 0; i < count; ++i) borrowed[i] = arguments[i].get();
  return owned(PyObject_Vectorcall(op.callable, borrowed.data(), positional, plain ? nullptr : op.keyword_tuple));
}

Object call_method(PyObject* self, const char* name, const Object* arguments, size_t count) {
  need_lock();
  const Object function = attribute(self, name);
  std::vector<PyObject*> borrowed(count + 1);
  for (size_t i = 0; i < count; ++i) borrowed[i] = arguments[i].get();
  return owned(PyObject_Vectorcall(function.get(), borrowed.data(), count, nullptr));
}

Object call_torch(const char* path, const Object* arguments, size_t count) {
  need_lock();
  Object place(torch().module);
  retain(place.get());
  std::string rest = path;
  for (size_t dot; (dot = rest.find('.')) != std::string::npos; rest = rest.substr(dot + 1))
    place = attribute(place.get(), rest.substr(0, dot).c_str());
  return call_method(place.get(), rest.c_str(), arguments, count);
}

Object attribute(PyObject* self, const char* name) {
  need_lock();
  return owned(PyObject_GetAttrString(self, name));
}

Object item(PyObject* self, const Object& key) {
  need_lock();
  return owned(PyObject_GetItem(self, key.get()));
}

void set_item(PyObject* self, const Object& key, const Object& value) {
  need_lock();
  if (PyObject_SetItem(self, key.get(), value.get()) != 0) raise_pending();
}

Object none() {
  retain(Py_None);
  return Object(Py_None);
}
Object ellipsis() {
  retain(Py_Ellipsis);
  return Object(Py_Ellipsis);
}
Object from_bool(bool value) { return owned(PyBool_FromLong(value)); }
Object from_int(int64_t value) { return owned(PyLong_FromLongLong(value)); }
Object from_double(double value) { return owned(PyFloat_FromDouble(value)); }
Object from_string(const char* data, size_t size) {
  return owned(PyUnicode_DecodeUTF8(data, static_cast<Py_ssize_t>(size), nullptr));
}
Object from_name(const char* name) { return attribute(torch().module, name); }

Object from_dtype(int32_t dtype) {
  PyObject* object = dtype >= 0 && dtype < DTYPE_COUNT ? torch().dtypes[dtype] : nullptr;
  if (object == nullptr) fail("RuntimeError", "this torch has no such element type");
  retain(object);
  return Object(object);
}

Object from_device(int32_t type, int32_t index) {
  std::string text = DEVICES[type];
  if (index >= 0) text += ":" + std::to_string(index);
  const Object name = from_string(text.data(), text.size());
  return owned(PyObject_CallFunctionObjArgs(torch().device_type, name.get(), nullptr));
}

Object list(std::vector<Object> items) {
  Object made = owned(PyList_New(static_cast<Py_ssize_t>(items.size())));
  for (size_t i = 0; i < items.size(); ++i) PyList_SET_ITEM(made.get(), i, items[i].take());
  return made;
}

Object tuple(std::vector<Object> items) {
  Object made = owned(PyTuple_New(static_cast<Py_ssize_t>(items.size())));
  for (size_t i = 0; i < items.size(); ++i) PyTuple_SET_ITEM(made.get(), i, items[i].take());
  return made;
}

Object slice(const Object& start, const Object& stop, const Object& step) {
  return owned(PySlice_New(start.get(), stop.get(), step.get()));
}

bool is_none(PyObject* object) { return object == Py_None; }
bool is_python_bool(PyObject* object) { return PyBool_Check(object); }
bool is_python_int(PyObject* object) { return PyLong_Check(object); }
bool is_python_float(PyObject* object) { return PyFloat_Check(object); }

bool to_bool(PyObject* object, bool convert, bool* value) {
  if (!PyBool_Check(object)) {
    const PyNumberMethods* numbers = Py_TYPE(object)->tp_as_number;
    const bool numeric = numbers != nullptr && numbers->nb_bool != nullptr;
    if (!convert || (object != Py_None && !numeric)) return false;
  }
  const int truth = PyObject_IsTrue(object);
  PyErr_Clear();
  *value = truth == 1;
  return truth >= 0;
}

bool to_int(PyObject* object, bool convert, int64_t* value) {
  if (PyFloat_Check(object) || (!convert && !PyLong_Check(object) && !PyIndex_Check(object))) return false;
  PyObject* number = PyIndex_Check(object) ? PyNumber_Index(object) : nullptr;
  PyErr_Clear();
  if (number == nullptr && convert && PyNumber_Check(object)) number = PyNumber_Long(object);
  if (number != nullptr) *value = PyLong_AsLongLong(number);
  Py_XDECREF(number);
  const bool good = number != nullptr && !PyErr_Occurred();
  PyErr_Clear();
  return good;
}

bool to_double(PyObject* object, bool convert, double* value) {
  if (!convert && !PyFloat_Check(object)) return false;
  *value = PyFloat_AsDouble(object);
  const bool good = !(*value == -1.0 && PyErr_Occurred());
  PyErr_Clear();
  return good;
}

bool to_string(PyObject* object, std::string* value) {
  if (PyBytes_Check(object)) {
    value->assign(PyBytes_AS_STRING(object), PyBytes_GET_SIZE(object));
    return true;
  }
  Py_ssize_t size = 0;
  const char* data = PyUnicode_Check(object) ? PyUnicode_AsUTF8AndSize(object, &size) : nullptr;
  PyErr_Clear();
  if (data != nullptr) value->assign(data, size);
  return data != nullptr;
}

bool to_dtype(PyObject* object, int32_t* value) {
  for (int i = 0; i < DTYPE_COUNT; ++i) {
    if (object == torch().dtypes[i]) {
      *value = i;
      return true;
    }
  }
  return false;
}

bool to_device(PyObject* object, int32_t* type, int32_t* index) {
  if (PyObject_IsInstance(object, torch().device_type) != 1) return false;
  std::string name;
  if (!to_string(attribute(object, "type").get(), &name)) return false;
  int64_t number = -1;
  const Object numbered = attribute(object, "index");
  if (!is_none(numbered.get()) && !to_int(numbered.get(), false, &number)) return false;
  *index = static_cast<int32_t>(number);
  for (*type = 0; *type < 3; ++*type) {
    if (name == DEVICES[*type]) return true;
  }
  return false;
}

bool to_items(PyObject* object, bool as_array_ref, std::vector<Object>* items) {
  const bool plain = PyList_Check(object) || PyTuple_Check(object);
  if (!plain && (as_array_ref || !PySequence_Check(object) || PyUnicode_Check(object) || PyBytes_Check(object)))
    return false;
  const Py_ssize_t size = PySequence_Size(object);
  for (Py_ssize_t i = 0; i < size; ++i) {
    items->emplace_back(PySequence_GetItem(object, i));
    if (!items->back()) break;
  }
  const bool good = !PyErr_Occurred();
  PyErr_Clear();
  return good;
}

void fail(const char* kind, std::string message) { throw Error(kind, std::move(message)); }

void warn(const std::string& message) {
  need_lock();
  if (PyErr_WarnEx(PyExc_UserWarning, message.c_str(), 1) != 0) raise_pending();
}

}  // namespace cgins_shadow

#include <shadow/module.h>
