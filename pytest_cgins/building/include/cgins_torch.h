/* cgins_torch.h: a launcher as a torch operator, over torch's stable ABI (torch 2.10 and later).
 *
 * A generated binding includes this file. It needs no symbol that is younger than torch 2.10, so a library
 * that was built against one torch runs on later ones. Of torch's CUDA library it uses one function, which is
 * looked up when the first CUDA tensor arrives: a library with CUDA kernels also loads where torch has no CUDA.
 */
#pragma once

#if !__has_include(<torch/csrc/stable/version.h>)
#error "a torch operator over the stable ABI needs the headers of torch 2.10 or later"
#endif
#ifndef TORCH_TARGET_VERSION
#define TORCH_TARGET_VERSION ((2ULL << 56) | (10ULL << 48))
#endif
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <cgins.h>
#include <dlfcn.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace __attribute__((visibility("hidden"))) cgins_torch {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

/* torch's own macro for this has another name in every other version. */
inline void require(int32_t status) {
  if (status) throw std::runtime_error("a call into torch failed; torch has printed why");
}

/* Shape, strides and element type of one output. */
struct Description {
  std::vector<int64_t> sizes, strides;
  int32_t dtype;
};

using Descriptions = std::vector<Description>;

inline DLDataType dl_type(ScalarType type) {
  switch (type) {
    case ScalarType::Bool: return {6, 8, 1};
    case ScalarType::Byte: return {kDLUInt, 8, 1};
    case ScalarType::UInt16: return {kDLUInt, 16, 1};
    case ScalarType::UInt32: return {kDLUInt, 32, 1};
    case ScalarType::UInt64: return {kDLUInt, 64, 1};
    case ScalarType::Char: return {kDLInt, 8, 1};
    case ScalarType::Short: return {kDLInt, 16, 1};
    case ScalarType::Int: return {kDLInt, 32, 1};
    case ScalarType::Long: return {kDLInt, 64, 1};
    case ScalarType::Half: return {kDLFloat, 16, 1};
    case ScalarType::BFloat16: return {kDLBfloat, 16, 1};
    case ScalarType::Float8_e4m3fn: return {10, 8, 1};
    case ScalarType::Float8_e5m2: return {12, 8, 1};
    case ScalarType::Float: return {kDLFloat, 32, 1};
    case ScalarType::Double: return {kDLFloat, 64, 1};
    case ScalarType::ComplexFloat: return {5, 64, 1};
    case ScalarType::ComplexDouble: return {5, 128, 1};
    default: throw std::runtime_error("a kernel takes no tensors of this element type");
  }
}

inline std::optional<DLDataType> dl_type(std::optional<ScalarType> type) {
  return type ? std::optional<DLDataType>(dl_type(*type)) : std::nullopt;
}

/* A number of a kind that the caller chose; kind -1 is None. */
inline std::optional<cgins_scalar> scalar(int64_t kind, int64_t integer, double real, double imaginary) {
  if (kind < 0) return std::nullopt;
  return cgins_scalar{int32_t(kind), integer, real, imaginary};
}

template <typename T>
const T* address(const std::optional<T>& value) {
  return value ? &*value : nullptr;
}

template <typename T>
const T* items(const std::optional<std::vector<T>>& values) {
  return values ? values->data() : nullptr;
}

template <typename T>
int64_t count(const std::optional<std::vector<T>>& values) {
  return values ? int64_t(values->size()) : 0;
}

/* One call of a launcher: what its arguments point to, and memory for its outputs. */
class Call {
 public:
  Call(const char* op, DLDeviceType device) : op_(op), device_{device, -1} {}

  template <typename T>
  const DLTensor* input(const char* name, const T& tensor) {
    return add(name, tensor, false);
  }
  template <typename T>
  DLTensor* mutated(const char* name, const T& tensor) {
    return distinct(name, add(name, tensor, true));
  }
  DLTensor* output(const Tensor& tensor) { return add("out", tensor, true); }

  /* A list of tensors; items of a list of optional ones may be None. */
  template <typename T>
  const DLTensor* const* inputs(const char* name, const std::vector<T>& tensors) {
    return list(name, tensors, false).data();
  }
  template <typename T>
  DLTensor* const* mutables(const char* name, const std::vector<T>& tensors) {
    const std::vector<DLTensor*>& made = list(name, tensors, true);
    for (DLTensor* one : made) distinct(name, one);
    return made.data();
  }
  template <typename T>
  const DLTensor* const* inputs(const char* name, const std::optional<std::vector<T>>& tensors) {
    note(tensors.has_value());
    return tensors ? inputs(name, *tensors) : nullptr;
  }
  DLTensor* const* outputs(const std::vector<Tensor>& tensors) { return list("out", tensors, true).data(); }

  /* std::vector<bool> has no array of bools inside. */
  const bool* bools(const std::vector<bool>& values) {
    bools_.emplace_back(new bool[values.size() + 1]);
    for (size_t i = 0; i < values.size(); ++i) bools_.back()[i] = values[i];
    return bools_.back().get();
  }
  const bool* bools(const std::optional<std::vector<bool>>& values) { return values ? bools(*values) : nullptr; }

  template <typename T>
  T required(const char* name, const std::optional<T>& value) const {
    if (!value) fail(std::string(name) + " is None");
    return *value;
  }

  /* Plain data on which the outputs' shapes may depend. */
  void note(int64_t value) { key_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void note(bool value) { note(int64_t(value)); }
  void note(double value) { key_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void note(ScalarType value) { note(int64_t(value)); }
  void note(const std::string& value) {
    note(int64_t(value.size()));
    key_ += value;
  }
  template <typename T>
  void note(const std::vector<T>& values) {
    note(int64_t(values.size()));
    for (const T value : values) note(value);
  }
  template <typename T>
  void note(const std::optional<T>& value) {
    note(value.has_value());
    if (value) note(*value);
  }
  const std::string& key() const { return key_; }
  const char* op() const { return op_; }

  Tensor allocate(const Description& description) const {
    return allocate(description.sizes, description.strides, description.dtype);
  }
  std::vector<Tensor> allocate(const Descriptions& all, size_t first, size_t last) const {
    std::vector<Tensor> tensors;
    for (size_t i = first; i < last; ++i) tensors.push_back(allocate(all[i]));
    return tensors;
  }

  /* Scratch memory until the call is over; on a GPU, until the work on the stream is. */
  void* workspace(int64_t nbytes) {
    if (nbytes < 0) fail("its workspace function returned " + std::to_string(nbytes));
    workspace_ = allocate(Description{{nbytes}, {1}, aoti_torch_dtype_uint8()});
    return nbytes ? workspace_->mutable_data_ptr() : nullptr;
  }

  /* The stream that is current in torch; and what a launch needs besides. */
  cgins_stream stream() const {
    cgins_message[0] = 0;
    if (device_.device_type == kDLCPU) {
#ifdef _OPENMP
      // torch may have brought an OpenMP runtime of its own, and this one would not know its thread count.
      uint32_t threads = 1;
      require(torch_get_num_threads(&threads));
      omp_set_num_threads(int(threads));
#endif
      return nullptr;
    }
    void* current = nullptr;
    require(stream_getter()(device_.device_id, &current));
    return static_cast<cgins_stream>(current);
  }

  void done(int status) const {
    if (!status) return;
    const char* message = cgins_last_error();
    fail(message[0] ? message : "the kernel returned " + std::to_string(status) + ", without a message");
  }

 private:
  using StreamGetter = int32_t (*)(int32_t, void**);

  static StreamGetter stream_getter() {
    static const StreamGetter found = [] {
      void* library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
      return reinterpret_cast<StreamGetter>(
          dlsym(library ? library : RTLD_DEFAULT, "aoti_torch_get_current_cuda_stream"));
    }();
    if (!found) throw std::runtime_error("this torch has no CUDA streams");
    return found;
  }

  [[noreturn]] void fail(const std::string& message) const {
    throw std::runtime_error(std::string(op_) + ": " + message);
  }

  Tensor allocate(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, int32_t dtype) const {
    const bool cuda = device_.device_type == kDLCUDA;
    AtenTensorHandle made = nullptr;
    require(aoti_torch_empty_strided(
        int64_t(sizes.size()), sizes.data(), strides.data(), dtype,
        cuda ? aoti_torch_device_type_cuda() : aoti_torch_device_type_cpu(), cuda ? device_.device_id : 0, &made));
    return Tensor(made);
  }

  /* torch's own ops refuse to write to expanded tensors, too. */
  DLTensor* distinct(const char* name, DLTensor* tensor) const {
    for (int32_t i = 0; tensor && i < tensor->ndim; ++i)
      if (tensor->shape[i] > 1 && !tensor->strides[i])
        fail(std::string(name) + " is written to, and several of its elements are one place in memory: clone() it");
    return tensor;
  }

  DLTensor* add(const char* name, const std::optional<Tensor>& tensor, bool written) {
    note(tensor.has_value());
    return tensor ? add(name, *tensor, written) : nullptr;
  }

  DLTensor* add(const char* name, const Tensor& tensor, bool written) {
    require_device(name, tensor);
    DLTensor made{};
    made.data = !tensor.numel() ? nullptr
                : written       ? tensor.mutable_data_ptr()
                                : const_cast<void*>(tensor.const_data_ptr());
    made.device = {device_.device_type, device_.device_type == kDLCUDA ? device_.device_id : 0};
    made.ndim = int32_t(tensor.dim());
    made.dtype = dl_type(tensor.scalar_type());
    made.shape = const_cast<int64_t*>(tensor.sizes().data());
    made.strides = const_cast<int64_t*>(tensor.strides().data());
    note(int64_t(tensor.scalar_type()));
    note(int64_t(made.ndim));
    for (int32_t i = 0; i < made.ndim; ++i) note(made.shape[i]), note(made.strides[i]);
    return &tensors_.emplace_back(made);
  }

  template <typename T>
  const std::vector<DLTensor*>& list(const char* name, const std::vector<T>& tensors, bool written) {
    note(int64_t(tensors.size()));
    std::vector<DLTensor*>& made = lists_.emplace_back();
    made.reserve(tensors.size() + 1);
    for (const T& tensor : tensors) made.push_back(add(name, tensor, written));
    return made;
  }

  void require_device(const char* name, const Tensor& tensor) {
    int32_t layout = 0;
    require(aoti_torch_get_layout(tensor.get(), &layout));
    if (layout != aoti_torch_layout_strided()) fail(std::string(name) + " is a sparse tensor");
    const bool cuda = device_.device_type == kDLCUDA;
    if (cuda ? !tensor.is_cuda() : !tensor.is_cpu())
      fail(std::string(name) + " is on another device than " + (cuda ? "CUDA" : "the CPU"));
    const int32_t index = tensor.get_device_index();
    if (device_.device_id == -1) {
      device_.device_id = cuda ? index : 0;
      if (cuda) guard_.emplace(index);
    } else if (cuda && index != device_.device_id) {
      fail(std::string(name) + " is on cuda:" + std::to_string(index) + ", an argument before it on cuda:" +
           std::to_string(device_.device_id));
    }
  }

  const char* op_;
  DLDevice device_;
  std::optional<torch::stable::accelerator::DeviceGuard> guard_;
  std::deque<DLTensor> tensors_;
  std::deque<std::vector<DLTensor*>> lists_;
  std::deque<std::unique_ptr<bool[]>> bools_;
  std::optional<Tensor> workspace_;
  std::string key_;
};

/* A value as the stable ABI takes it. A list of bools goes by an array: std::vector<bool> has none inside. */
template <typename T>
StableIValue sent(const T& value) {
  return torch::stable::detail::from(value);
}

inline StableIValue sent(const std::optional<std::vector<bool>>& values) {
  using Array = torch::headeronly::HeaderOnlyArrayRef<bool>;
  if (!values) return torch::stable::detail::from(std::optional<Array>());
  const std::unique_ptr<bool[]> copy(new bool[values->size() + 1]);
  for (size_t i = 0; i < values->size(); ++i) copy[i] = (*values)[i];
  return torch::stable::detail::from(std::optional<Array>(Array(copy.get(), values->size())));
}

inline StableIValue sent(const std::vector<bool>& values) {
  const std::unique_ptr<bool[]> copy(new bool[values.size() + 1]);
  for (size_t i = 0; i < values.size(); ++i) copy[i] = values[i];
  return torch::stable::detail::from(torch::headeronly::HeaderOnlyArrayRef<bool>(copy.get(), values.size()));
}

/* Shapes of an op's outputs, by what its calls look like. The op that the kernel replaces tells them, through
 * an operator that Python registers: once for each combination of shapes. */
class Outputs {
 public:
  explicit Outputs(const char* op) : op_(op) {}

  /* Throws what Python said, if the op refuses the arguments. */
  template <typename... Arguments>
  std::shared_ptr<const Descriptions> of(const Call& call, const Arguments&... arguments) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto found = known_.find(call.key());
      if (found != known_.end()) return found->second;
    }
    auto told = std::make_shared<const Descriptions>(ask(call, arguments...));
    const std::lock_guard<std::mutex> lock(mutex_);
    if (known_.size() >= kLimit) known_.clear();
    known_.emplace(call.key(), told);
    return told;
  }

 private:
  static constexpr size_t kLimit = 4096;

  template <typename... Arguments>
  Descriptions ask(const Call& call, const Arguments&... arguments) const {
    StableIValue stack[sizeof...(Arguments) + 1] = {sent(arguments)...};
    if (torch_call_dispatcher(op_, "", stack, TORCH_ABI_VERSION))
      throw std::runtime_error(std::string(call.op()) + ": " + op_ +
                               " cannot be called: import the Python package of this library");
    const auto metas = torch::stable::detail::to<std::vector<Tensor>>(stack[0]);
    // Meta tensors; or one on the CPU, whose bytes say what is wrong.
    if (!metas.empty() && metas[0].is_cpu()) {
      const auto* text = static_cast<const char*>(metas[0].const_data_ptr());
      throw std::runtime_error(std::string(call.op()) + ": " + std::string(text, size_t(metas[0].numel())));
    }
    Descriptions told;
    for (const Tensor& meta : metas) {
      const auto sizes = meta.sizes(), strides = meta.strides();
      int32_t dtype = 0;
      require(aoti_torch_get_dtype(meta.get(), &dtype));
      told.push_back({{sizes.begin(), sizes.end()}, {strides.begin(), strides.end()}, dtype});
    }
    return told;
  }

  const char* op_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Descriptions>> known_;
};

}  // namespace cgins_torch
