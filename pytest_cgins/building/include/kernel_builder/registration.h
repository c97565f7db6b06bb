// Macros that the builder of Hugging Face's kernels gives to a torch-ext/torch_binding.cpp.
#pragma once
#include <Python.h>
#include <torch/library.h>

// TORCH_EXTENSION_NAME is a macro: its value names the operators, not the word.
#define TORCH_LIBRARY_EXPAND(name, module) TORCH_LIBRARY(name, module)
#define TORCH_LIBRARY_IMPL_EXPAND(name, key, module) TORCH_LIBRARY_IMPL(name, key, module)
#define CGINS_TEXT(name) #name
#define CGINS_INIT(name)                                                                     \
  PyMODINIT_FUNC PyInit_##name() {                                                           \
    static PyModuleDef module = {PyModuleDef_HEAD_INIT, CGINS_TEXT(name), nullptr, 0, nullptr}; \
    return PyModule_Create(&module);                                                         \
  }
#define REGISTER_EXTENSION(name) CGINS_INIT(name)
