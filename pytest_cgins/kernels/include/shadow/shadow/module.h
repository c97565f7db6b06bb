/* Functions of a module and operators of the dispatcher, as Python sees them; a part of runtime.cpp. */
#pragma once

#include <Python.h>

#include <algorithm>
#include <map>
#include <new>
#include <stdexcept>

#include <shadow/runtime.h>

namespace cgins_shadow {
namespace {

PyObject* exception_type(const std::string& kind) {
  if (kind == "ValueError") return PyExc_ValueError;
  if (kind == "IndexError") return PyExc_IndexError;
  if (kind == "TypeError") return PyExc_TypeError;
  if (kind == "NotImplementedError") return PyExc_NotImplementedError;
  return PyExc_RuntimeError;
}

/* To be called in a catch clause: what Python raises for the exception. */
void translate() {
  try {
    throw;
  } catch (const Error& error) {
    if (error.value())
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.value().get())), error.value().get());
    else
      PyErr_SetString(exception_type(error.kind()), error.what());
  } catch (const std::bad_alloc& error) {
    PyErr_SetString(PyExc_MemoryError, error.what());
  } catch (const std::out_of_range& error) {
    PyErr_SetString(PyExc_IndexError, error.what());
  } catch (const std::overflow_error& error) {
    PyErr_SetString(PyExc_OverflowError, error.what());
  } catch (const std::range_error& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::logic_error& error) {
    PyErr_SetString(
        dynamic_cast<const std::invalid_argument*>(&error) || dynamic_cast<const std::domain_error*>(&error) ||
                dynamic_cast<const std::length_error*>(&error)
            ? PyExc_ValueError
            : PyExc_RuntimeError,
        error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "Caught an unknown exception!");
  }
}

std::string signature(const Function& function) {
  std::string text = function.name + "(";
  for (size_t i = 0; i < function.parameters.size(); ++i) {
    const Parameter& parameter = function.parameters[i];
    text += i == 0 ? "" : ", ";
    text += (parameter.name.empty() ? "arg" + std::to_string(i) : parameter.name) + ": " + parameter.type;
    if (parameter.standard) {
      PyObject* shown = PyObject_Repr(parameter.standard.get());
      const char* utf8 = shown != nullptr ? PyUnicode_AsUTF8(shown) : nullptr;
      text += std::string(" = ") + (utf8 != nullptr ? utf8 : "...");
      Py_XDECREF(shown);
      PyErr_Clear();
    }
  }
  return text + ") -> " + function.result;
}

/* All overloads of one name. */
struct Overloads {
  std::vector<Function> functions;
  std::string doc;
  PyMethodDef method;
};

/* Arguments in the order of the parameters; false if they cannot be. */
bool arrange(const Function& function, PyObject* const* arguments, size_t positional, PyObject* names,
             std::vector<PyObject*>* arranged) {
  const size_t count = function.parameters.size();
  const size_t named = names != nullptr ? PyTuple_GET_SIZE(names) : 0;
  if (positional > count) return false;
  arranged->assign(count + 1, nullptr);
  std::copy(arguments, arguments + positional, arranged->begin());
  for (size_t k = 0; k < named; ++k) {
    size_t place = positional;
    while (place < count && (function.parameters[place].name.empty() ||
                             PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, k),
                                                              function.parameters[place].name.c_str()) != 0))
      ++place;
    if (place == count) return false;
    (*arranged)[place] = arguments[positional + k];
  }
  for (size_t i = 0; i < count; ++i) {
    if ((*arranged)[i] == nullptr) (*arranged)[i] = function.parameters[i].standard.get();
    if ((*arranged)[i] == nullptr) return false;
  }
  return true;
}

PyObject* dispatch(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  const auto* overloads = static_cast<const Overloads*>(PyCapsule_GetPointer(self, nullptr));
  try {
    // As pybind11: first without conversions, if there is a choice.
    for (int pass = overloads->functions.size() == 1 ? 1 : 0; pass < 2; ++pass) {
      for (const Function& function : overloads->functions) {
        std::vector<PyObject*> arranged;
        if (!arrange(function, arguments, count, names, &arranged)) continue;
        bool matched = false;
        Object result = function.invoke(function.callable, arranged.data(), pass == 1, &matched);
        if (matched) return result.take();
      }
    }
    std::string text = overloads->method.ml_name;
    text += "(): incompatible function arguments. The following argument types are supported:";
    for (size_t i = 0; i < overloads->functions.size(); ++i)
      text += "\n    " + std::to_string(i + 1) + ". " +
              signature(overloads->functions[i]).substr(overloads->functions[i].name.size());
    PyErr_SetString(PyExc_TypeError, text.c_str());
  } catch (...) {
    translate();
  }
  return nullptr;
}

PyObject* new_callable(Overloads* overloads) {
  overloads->method = {overloads->functions[0].name.c_str(),
                       reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(dispatch)),
                       METH_FASTCALL | METH_KEYWORDS, overloads->doc.c_str()};
  const Object capsule = owned(PyCapsule_New(overloads, nullptr, nullptr));
  return owned(PyCFunction_NewEx(&overloads->method, capsule.get(), nullptr)).take();
}

std::vector<Registration>& registrations() {
  static std::vector<Registration> all;
  return all;
}

/* torch.library.Library objects by namespace and key; they end with the process. */
PyObject* library(const char* space, const char* kind, const char* key) {
  static std::map<std::string, PyObject*> made;
  PyObject*& found = made[std::string(space) + "/" + kind + "/" + key];
  if (found == nullptr) {
    const Object module = attribute(torch().module, "library");
    const Object type = attribute(module.get(), "Library");
    found = owned(PyObject_CallFunction(type.get(), "sss", space, kind, key)).take();
  }
  return found;
}

}  // namespace

void Module::define(Function function) {
  auto* overloads = new Overloads;
  PyObject* known = PyDict_GetItemString(PyModule_GetDict(object_), function.name.c_str());
  if (known != nullptr && PyCFunction_Check(known)) {
    PyObject* capsule = PyCFunction_GET_SELF(known);
    overloads->functions = static_cast<const Overloads*>(PyCapsule_GetPointer(capsule, nullptr))->functions;
  }
  overloads->functions.push_back(std::move(function));
  for (const Function& each : overloads->functions)
    overloads->doc += signature(each) + "\n" + (each.doc.empty() ? "" : "\n" + each.doc + "\n");
  const Object callable(new_callable(overloads));
  if (PyObject_SetAttrString(object_, overloads->method.ml_name, callable.get()) != 0) raise_pending();
}

PyObject* create_module(const char* name, void (*bind)(Module&)) {
  try {
    auto* definition = new PyModuleDef{PyModuleDef_HEAD_INIT, name, nullptr, -1, nullptr, nullptr, nullptr,
                                       nullptr, nullptr};
    Object object = owned(PyModule_Create(definition));
    Module module(object.get());
    for (const Registration& registration : registrations()) registration.body(registration);
    registrations().clear();
    bind(module);
    return object.take();
  } catch (...) {
    translate();
    return nullptr;
  }
}

void add_registration(Registration registration, bool has_module) {
  if (has_module) {
    registrations().push_back(registration);
    return;
  }
  const PyGILState_STATE lock = PyGILState_Ensure();  // ctypes may have let go of it
  registration.body(registration);
  PyGILState_Release(lock);
}

void define_operator(const char* space, const std::string& schema) {
  const Object text = from_string(schema.data(), schema.size());
  call_method(library(space, "FRAGMENT", ""), "define", &text, 1);
}

void implement_operator(const char* space, const char* key, const std::string& name, Function function) {
  auto* overloads = new Overloads;
  overloads->functions.push_back(std::move(function));
  const Object arguments[] = {from_string(name.data(), name.size()), Object(new_callable(overloads))};
  call_method(library(space, "IMPL", key), "impl", arguments, 2);
}

}  // namespace cgins_shadow
