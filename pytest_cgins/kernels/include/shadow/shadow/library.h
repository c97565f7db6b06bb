/* TORCH_LIBRARY: definitions and implementations of operators, registered when the module is imported. */
#pragma once

#include <shadow/bind.h>

#define TORCH_FN(function) (&function)
#define TORCH_SELECTIVE_NAME(name) name

namespace torch {

class Library {
 public:
  Library(const char* space, const char* key) : space_(space), key_(key) {}
  Library& def(const char* schema) {
    cgins_shadow::define_operator(space_, schema);
    return *this;
  }
  template <typename Callable>
  Library& def(const char* schema, Callable&& callable) {
    const std::string text(schema);
    TORCH_CHECK(text.find('(') != std::string::npos, "TORCH_LIBRARY: m.def(\"", text,
                "\", …) without a schema is not in the shadow headers; build with the real ones");
    def(schema);
    return implement(text.substr(0, text.find('(')), "CompositeImplicitAutograd", std::forward<Callable>(callable));
  }
  template <typename Callable>
  Library& impl(const char* name, Callable&& callable) {
    TORCH_CHECK(*key_ != 0, "TORCH_LIBRARY: m.impl(\"", name,
                "\", …) without a dispatch key is not in the shadow headers; build with the real ones");
    return implement(name, key_, std::forward<Callable>(callable));
  }
  template <typename Callable>
  Library& impl(const char* name, c10::DeviceType device, Callable&& callable) {
    return implement(name, device == c10::kCUDA ? "CUDA" : device == c10::kCPU ? "CPU" : "Meta",
                     std::forward<Callable>(callable));
  }

 private:
  template <typename Callable>
  Library& implement(const std::string& name, const char* key, Callable&& callable) {
    cgins_shadow::Function function = cgins_shadow::describe(std::forward<Callable>(callable));
    function.name = name;
    cgins_shadow::implement_operator(space_, key, name, std::move(function));
    return *this;
  }
  const char* space_;
  const char* key_;
};

}  // namespace torch

#ifdef CGINS_SHADOW_NO_MODULE
#define CGINS_SHADOW_HAS_MODULE false
#else
#define CGINS_SHADOW_HAS_MODULE true
#endif
#define CGINS_SHADOW_LIBRARY(namespace_name, dispatch_key, variable, number)                    \
  static void CGINS_SHADOW_JOIN(cgins_shadow_library_, number)(::torch::Library&);              \
  static void CGINS_SHADOW_JOIN(cgins_shadow_body_, number)(const ::cgins_shadow::Registration& self) { \
    ::torch::Library library(self.space, self.key);                                             \
    CGINS_SHADOW_JOIN(cgins_shadow_library_, number)(library);                                  \
  }                                                                                             \
  static const bool CGINS_SHADOW_JOIN(cgins_shadow_registered_, number) =                       \
      (::cgins_shadow::add_registration(                                                        \
           {namespace_name, dispatch_key, &CGINS_SHADOW_JOIN(cgins_shadow_body_, number)},      \
           CGINS_SHADOW_HAS_MODULE),                                                            \
       true);                                                                                   \
  static void CGINS_SHADOW_JOIN(cgins_shadow_library_, number)(::torch::Library & variable)
#define TORCH_LIBRARY(name, variable) CGINS_SHADOW_LIBRARY(#name, "", variable, __LINE__)
#define TORCH_LIBRARY_FRAGMENT(name, variable) CGINS_SHADOW_LIBRARY(#name, "", variable, __LINE__)
#define TORCH_LIBRARY_IMPL(name, dispatch_key, variable) CGINS_SHADOW_LIBRARY(#name, #dispatch_key, variable, __LINE__)
