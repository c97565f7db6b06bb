/* Stand-ins for torch's C++ headers: what kernels of search need of them, compiled in a second or two.
 *
 * Every header of torch that is offered is this file (the list is in shadow.py). What is missing is an error of
 * the compiler, and no verdict about the kernel: final acceptance is built with the real headers.
 */
#pragma once

#include <shadow_standard.h>

#include <shadow/bind.h>
#include <shadow/dispatch.h>
#include <shadow/library.h>
#if defined(__CUDACC__) || defined(CGINS_SHADOW_CUDA)
#include <shadow/cuda.h>
#endif

#include <algorithm>
#include <cmath>

namespace at {
inline int get_num_threads() {
  return static_cast<int>(cgins_shadow::as<int64_t>(cgins_shadow::call_torch("get_num_threads", nullptr, 0)));
}
inline bool in_parallel_region() {
#ifdef _OPENMP
  return omp_in_parallel();
#else
  return false;
#endif
}
/* function(begin, end) on pieces of a range, by OpenMP where the kernel is compiled with it. */
template <typename Function>
void parallel_for(int64_t begin, int64_t end, int64_t grain, const Function& function) {
  if (begin >= end) return;
#ifdef _OPENMP
  const int64_t size = end - begin;
  const int64_t pieces =
      omp_in_parallel() ? 1 : std::min<int64_t>(get_num_threads(), ceil_div(size, std::max<int64_t>(grain, 1)));
  std::exception_ptr thrown;
#pragma omp parallel for num_threads(pieces) if (pieces > 1)
  for (int64_t piece = 0; piece < pieces; ++piece) {
    try {
      const int64_t step = ceil_div(size, pieces), first = begin + piece * step;
      if (first < end) function(first, std::min(end, first + step));
    } catch (...) {
#pragma omp critical
      thrown = std::current_exception();
    }
  }
  if (thrown) std::rethrow_exception(thrown);
#else
  static_cast<void>(grain);
  function(begin, end);
#endif
}
/* Autograd off as long as it lives. */
class NoGradGuard {
 public:
  NoGradGuard() : before_(cgins_shadow::as<bool>(cgins_shadow::call_torch("is_grad_enabled", nullptr, 0))) {
    set(false);
  }
  NoGradGuard(const NoGradGuard&) = delete;
  NoGradGuard& operator=(const NoGradGuard&) = delete;
  ~NoGradGuard() { set(before_); }

 private:
  static void set(bool enabled) {
    const cgins_shadow::Object value = cgins_shadow::to_object(enabled);
    cgins_shadow::call_torch("_C._set_grad_enabled", &value, 1);
  }
  bool before_;
};
}  // namespace at


namespace torch {
using namespace at;
using Dtype = at::ScalarType;
namespace cuda {
inline bool is_available() {
  return cgins_shadow::as<bool>(cgins_shadow::call_torch("cuda.is_available", nullptr, 0));
}
inline void synchronize(int64_t = -1) { cgins_shadow::call_torch("cuda.synchronize", nullptr, 0); }
}  // namespace cuda
}  // namespace torch
