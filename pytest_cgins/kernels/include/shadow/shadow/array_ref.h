/* c10::ArrayRef and its kin. */
#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include <shadow/error.h>

namespace c10 {

using std::make_optional;
using std::nullopt;
using std::nullopt_t;
using std::optional;

template <typename T>
class ArrayRef {
 public:
  using value_type = T;
  using iterator = const T*;
  using const_iterator = const T*;
  constexpr ArrayRef() = default;
  constexpr ArrayRef(const T& one) : data_(&one), size_(1) {}
  constexpr ArrayRef(const T* data, size_t size) : data_(data), size_(size) {}
  constexpr ArrayRef(const T* begin, const T* end) : data_(begin), size_(end - begin) {}
  template <typename A>
  ArrayRef(const std::vector<T, A>& items) : data_(items.data()), size_(items.size()) {
    static_assert(!std::is_same_v<T, bool>, "no ArrayRef<bool> of a std::vector<bool>");
  }
  template <size_t N>
  constexpr ArrayRef(const std::array<T, N>& items) : data_(items.data()), size_(N) {}
  template <size_t N>
  constexpr ArrayRef(const T (&items)[N]) : data_(items), size_(N) {}
  constexpr ArrayRef(const std::initializer_list<T>& items)
      : data_(items.begin() == items.end() ? nullptr : items.begin()), size_(items.size()) {}
  constexpr const T* begin() const { return data_; }
  constexpr const T* end() const { return data_ + size_; }
  constexpr const T* data() const { return data_; }
  constexpr size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr const T& operator[](size_t index) const { return data_[index]; }
  const T& at(size_t index) const {
    TORCH_CHECK(index < size_, "ArrayRef: invalid index Index = ", index, "; Length = ", size_);
    return data_[index];
  }
  const T& front() const { return at(0); }
  const T& back() const { return at(size_ - 1); }
  ArrayRef slice(size_t start, size_t count) const { return ArrayRef(data_ + start, count); }
  ArrayRef slice(size_t start) const { return slice(start, size_ - start); }
  bool equals(ArrayRef other) const {
    if (size_ != other.size_) return false;
    for (size_t i = 0; i < size_; ++i) {
      if (!(data_[i] == other.data_[i])) return false;
    }
    return true;
  }
  std::vector<T> vec() const { return std::vector<T>(begin(), end()); }
  std::string str() const {
    std::string text = "[";
    for (size_t i = 0; i < size_; ++i) {
      if (i != 0) text += ", ";
      append_to(text, data_[i]);
    }
    return text + "]";
  }

 private:
  const T* data_ = nullptr;
  size_t size_ = 0;
};

template <typename T>
bool operator==(ArrayRef<T> a, ArrayRef<T> b) {
  return a.equals(b);
}
template <typename T>
bool operator!=(ArrayRef<T> a, ArrayRef<T> b) {
  return !a.equals(b);
}
template <typename T>
bool operator==(const std::vector<T>& a, ArrayRef<T> b) {
  return b.equals(a);
}
template <typename T>
bool operator!=(const std::vector<T>& a, ArrayRef<T> b) {
  return !b.equals(a);
}
template <typename T>
bool operator==(ArrayRef<T> a, const std::vector<T>& b) {
  return a.equals(b);
}
template <typename T>
bool operator!=(ArrayRef<T> a, const std::vector<T>& b) {
  return !a.equals(b);
}

using IntArrayRef = ArrayRef<int64_t>;

/* An optional ArrayRef that also takes one element and a braced list. */
template <typename T>
class OptionalArrayRef {
 public:
  constexpr OptionalArrayRef() = default;
  constexpr OptionalArrayRef(nullopt_t) {}
  template <typename U,
            std::enable_if_t<std::is_convertible_v<U&&, ArrayRef<T>> && !std::is_convertible_v<U&&, T> &&
                                 !std::is_same_v<std::decay_t<U>, OptionalArrayRef>,
                             int> = 0>
  constexpr OptionalArrayRef(U&& value) : value_(ArrayRef<T>(std::forward<U>(value))) {}
  OptionalArrayRef(const T& one) : value_(ArrayRef<T>(one)) {}
  constexpr OptionalArrayRef(const std::initializer_list<T>& items) : value_(ArrayRef<T>(items)) {}
  constexpr bool has_value() const { return value_.has_value(); }
  constexpr explicit operator bool() const { return value_.has_value(); }
  constexpr const ArrayRef<T>& value() const { return *value_; }
  constexpr const ArrayRef<T>& operator*() const { return *value_; }
  constexpr const ArrayRef<T>* operator->() const { return &*value_; }

 private:
  optional<ArrayRef<T>> value_;
};
using OptionalIntArrayRef = OptionalArrayRef<int64_t>;

/* for (const auto i : c10::irange(n)) */
template <typename T>
struct IntegerRange {
  struct Iterator {
    T value;
    T operator*() const { return value; }
    Iterator& operator++() {
      ++value;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return value < other.value; }
  };
  T first, last;
  Iterator begin() const { return {first}; }
  Iterator end() const { return {last}; }
};
template <typename T>
IntegerRange<T> irange(T end) {
  return {T(0), end};
}
template <typename T, typename U>
IntegerRange<U> irange(T begin, U end) {
  return {static_cast<U>(begin), end};
}

}  // namespace c10
