/* TORCH_CHECK and its kin: exceptions that become Python's, with the message that torch gives. */
#pragma once

#include <cstdio>
#include <string>
#include <type_traits>

#include <shadow/runtime.h>

namespace c10 {

using Error = cgins_shadow::Error;

/* A message's parts, as operator<< prints them. Other types have a member str(). */
template <typename T>
inline void append_to(std::string& text, const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    text += value ? "1" : "0";
  } else if constexpr (std::is_same_v<T, char>) {
    text += value;
  } else if constexpr (std::is_integral_v<T>) {
    text += std::to_string(value);
  } else if constexpr (std::is_enum_v<T>) {
    text += toString(value);
  } else if constexpr (std::is_convertible_v<T, std::string>) {
    text += value;
  } else if constexpr (std::is_convertible_v<T, double>) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%g", static_cast<double>(value));
    text += digits;
  } else {
    text += value.str();
  }
}

template <typename... Parts>
inline std::string str(const Parts&... parts) {
  std::string text;
  (append_to(text, parts), ...);
  return text;
}

inline std::string check_message(const char* standard) { return standard; }
template <typename... Parts>
inline std::string check_message(const char*, const Parts&... parts) {
  return str(parts...);
}

}  // namespace c10

#define C10_LIKELY(expression) (__builtin_expect(static_cast<bool>(expression), 1))
#define C10_UNLIKELY(expression) (__builtin_expect(static_cast<bool>(expression), 0))
#define C10_UNUSED __attribute__((__unused__))
#define C10_ALWAYS_INLINE __attribute__((__always_inline__)) inline
#define C10_RESTRICT __restrict
#define C10_STRINGIZE_(text) #text
#define C10_STRINGIZE(text) C10_STRINGIZE_(text)

#define CGINS_SHADOW_CHECK(kind, condition, ...)                                                        \
  if (C10_UNLIKELY(!(condition))) {                                                                     \
    ::cgins_shadow::fail(kind, ::c10::check_message(                                                    \
        "Expected " #condition " to be true, but got false.  "                                          \
        "(Could this error message be improved?  If so, please report an enhancement request to PyTorch.)", \
        ##__VA_ARGS__));                                                                                \
  }
#define TORCH_CHECK(condition, ...) CGINS_SHADOW_CHECK("RuntimeError", condition, ##__VA_ARGS__)
#define TORCH_CHECK_VALUE(condition, ...) CGINS_SHADOW_CHECK("ValueError", condition, ##__VA_ARGS__)
#define TORCH_CHECK_INDEX(condition, ...) CGINS_SHADOW_CHECK("IndexError", condition, ##__VA_ARGS__)
#define TORCH_CHECK_TYPE(condition, ...) CGINS_SHADOW_CHECK("TypeError", condition, ##__VA_ARGS__)
#define TORCH_CHECK_NOT_IMPLEMENTED(condition, ...) \
  CGINS_SHADOW_CHECK("NotImplementedError", condition, ##__VA_ARGS__)
#define TORCH_INTERNAL_ASSERT(condition, ...)                                                         \
  if (C10_UNLIKELY(!(condition))) {                                                                   \
    ::cgins_shadow::fail("RuntimeError", ::c10::str(#condition " INTERNAL ASSERT FAILED at " __FILE__ \
                                                    ":", __LINE__, ". ", ##__VA_ARGS__));             \
  }
#define TORCH_INTERNAL_ASSERT_DEBUG_ONLY(...) static_cast<void>(0)
#define AT_ASSERTM(condition, ...) TORCH_CHECK(condition, ##__VA_ARGS__)
#define AT_ASSERT(condition) TORCH_INTERNAL_ASSERT(condition)
#define AT_ERROR(...) ::cgins_shadow::fail("RuntimeError", ::c10::str(__VA_ARGS__))
#define TORCH_WARN(...) ::cgins_shadow::warn(::c10::str(__VA_ARGS__))
#define TORCH_WARN_ONCE(...)                                                     \
  do {                                                                           \
    static const bool warned = (TORCH_WARN(__VA_ARGS__), true);                  \
    static_cast<void>(warned);                                                   \
  } while (0)
#define C10_THROW_ERROR(type, message) ::cgins_shadow::fail("RuntimeError", message)
#define TORCH_API
#define C10_API
#define C10_EXPORT
