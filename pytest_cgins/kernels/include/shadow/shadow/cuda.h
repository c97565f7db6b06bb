/* Streams, guards and checks of CUDA: torch's current stream and device, the runtime's own errors. */
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>
#ifdef CGINS_SHADOW_CUBLAS
#include <cublas_v2.h>
#endif

#include <shadow/tensor.h>

#define C10_CUDA_CHECK(expression)                                                               \
  do {                                                                                           \
    const cudaError_t cgins_shadow_status = expression;                                          \
    if (cgins_shadow_status != cudaSuccess) {                                                    \
      static_cast<void>(cudaGetLastError());                                                     \
      ::cgins_shadow::fail("RuntimeError",                                                       \
                           ::c10::str("CUDA error: ", cudaGetErrorString(cgins_shadow_status))); \
    }                                                                                            \
  } while (0)
#define AT_CUDA_CHECK(expression) C10_CUDA_CHECK(expression)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define C10_CUDA_CHECK_WARN(expression)                                       \
  do {                                                                        \
    const cudaError_t cgins_shadow_status = expression;                       \
    if (cgins_shadow_status != cudaSuccess)                                   \
      TORCH_WARN("CUDA warning: ", cudaGetErrorString(cgins_shadow_status));  \
  } while (0)

namespace c10 {
namespace cuda {

inline DeviceIndex current_device() {
  return static_cast<DeviceIndex>(
      cgins_shadow::as<int64_t>(cgins_shadow::call_torch("cuda.current_device", nullptr, 0)));
}
inline DeviceIndex device_count() {
  return static_cast<DeviceIndex>(
      cgins_shadow::as<int64_t>(cgins_shadow::call_torch("cuda.device_count", nullptr, 0)));
}
/* In torch, and in the runtime that this library is linked with. */
inline void set_device(DeviceIndex device, bool = false) {
  const cgins_shadow::Object index = cgins_shadow::to_object(static_cast<int64_t>(device));
  cgins_shadow::call_torch("cuda.set_device", &index, 1);
  C10_CUDA_CHECK(cudaSetDevice(device));
}
inline void device_synchronize() { C10_CUDA_CHECK(cudaDeviceSynchronize()); }

class CUDAStream {
 public:
  CUDAStream(cudaStream_t stream, DeviceIndex device) : stream_(stream), device_(device) {}
  cudaStream_t stream() const { return stream_; }
  operator cudaStream_t() const { return stream_; }
  DeviceIndex device_index() const { return device_; }
  Device device() const { return Device(kCUDA, device_); }
  bool query() const { return cudaStreamQuery(stream_) == cudaSuccess; }
  void synchronize() const { C10_CUDA_CHECK(cudaStreamSynchronize(stream_)); }
  bool operator==(const CUDAStream& other) const { return stream_ == other.stream_ && device_ == other.device_; }
  bool operator!=(const CUDAStream& other) const { return !(*this == other); }

 private:
  cudaStream_t stream_;
  DeviceIndex device_;
};

inline CUDAStream getCurrentCUDAStream(DeviceIndex device = -1) {
  if (device < 0) device = current_device();
  const cgins_shadow::Object index = cgins_shadow::to_object(static_cast<int64_t>(device));
  const int64_t handle =
      cgins_shadow::as<int64_t>(cgins_shadow::call_torch("_C._cuda_getCurrentRawStream", &index, 1));
  return CUDAStream(reinterpret_cast<cudaStream_t>(handle), device);
}
inline CUDAStream getDefaultCUDAStream(DeviceIndex device = -1) {
  return CUDAStream(nullptr, device < 0 ? current_device() : device);
}

/* Another current device as long as it lives. */
class CUDAGuard {
 public:
  explicit CUDAGuard(DeviceIndex index) : original_(current_device()), current_(original_) { set_index(index); }
  explicit CUDAGuard(Device device) : CUDAGuard(device.index()) {}
  CUDAGuard(const CUDAGuard&) = delete;
  CUDAGuard& operator=(const CUDAGuard&) = delete;
  ~CUDAGuard() {
    try {
      set_index(original_);
    } catch (...) {  // a destructor may not throw
    }
  }
  void set_index(DeviceIndex index) {
    if (index >= 0 && index != current_) set_device(index);
    if (index >= 0) current_ = index;
  }
  Device original_device() const { return Device(kCUDA, original_); }

 private:
  DeviceIndex original_;
  DeviceIndex current_;
};

class OptionalCUDAGuard {
 public:
  OptionalCUDAGuard() = default;
  explicit OptionalCUDAGuard(std::optional<Device> device) {
    if (device.has_value() && device->is_cuda()) guard_.emplace(*device);
  }
  explicit OptionalCUDAGuard(DeviceIndex index) { guard_.emplace(index); }
  void set_index(DeviceIndex index) { guard_.emplace(index); }
  void set_device(Device device) { guard_.emplace(device); }
  void reset() { guard_.reset(); }

 private:
  std::optional<CUDAGuard> guard_;
};

}  // namespace cuda
using DeviceGuard = cuda::OptionalCUDAGuard;
using OptionalDeviceGuard = cuda::OptionalCUDAGuard;
}  // namespace c10

namespace at {

using OptionalDeviceGuard = c10::OptionalDeviceGuard;
/* The device of a tensor, if it is a GPU. */
inline std::optional<Device> device_of(const Tensor& tensor) {
  return tensor.defined() ? std::optional<Device>(tensor.device()) : std::nullopt;
}

namespace cuda {
using namespace c10::cuda;
template <typename T>
constexpr C10_HOST_DEVICE T ATenCeilDiv(T a, T b) {
  return (a + b - 1) / b;
}
inline const cudaDeviceProp* getDeviceProperties(int64_t device) {
  constexpr int64_t limit = 64;
  static std::optional<cudaDeviceProp> known[limit];
  TORCH_CHECK(device >= 0 && device < limit, "there is no device ", device);
  if (!known[device].has_value()) {
    known[device].emplace();
    C10_CUDA_CHECK(cudaGetDeviceProperties(&*known[device], static_cast<int>(device)));
  }
  return &*known[device];
}
inline const cudaDeviceProp* getCurrentDeviceProperties() { return getDeviceProperties(c10::cuda::current_device()); }
inline int warp_size() { return getCurrentDeviceProperties()->warpSize; }
inline bool is_available() { return c10::cuda::device_count() > 0; }
#ifdef CGINS_SHADOW_CUBLAS
inline cublasHandle_t getCurrentCUDABlasHandle() {
  return reinterpret_cast<cublasHandle_t>(
      cgins_shadow::as<int64_t>(cgins_shadow::call_torch("cuda.current_blas_handle", nullptr, 0)));
}
#define TORCH_CUDABLAS_CHECK(expression)                                             \
  do {                                                                               \
    const cublasStatus_t cgins_shadow_status = expression;                           \
    TORCH_CHECK(cgins_shadow_status == CUBLAS_STATUS_SUCCESS, "CUDA error: cuBLAS ", \
                static_cast<int>(cgins_shadow_status), " when calling `" #expression "`"); \
  } while (0)
#endif
}  // namespace cuda
}  // namespace at

#ifdef __CUDACC__
/* Atomic additions under the names that ATen/cuda/Atomic.cuh has. */
template <typename T>
inline __device__ T gpuAtomicAdd(T* address, T value) {
  return atomicAdd(address, value);
}
template <typename T>
inline __device__ void gpuAtomicAddNoReturn(T* address, T value) {
  atomicAdd(address, value);
}
template <typename T>
__device__ __forceinline__ T WARP_SHFL_DOWN(T value, unsigned delta, int width = warpSize, unsigned mask = 0xffffffff) {
  return __shfl_down_sync(mask, value, delta, width);
}
template <typename T>
__device__ __forceinline__ T WARP_SHFL_XOR(T value, int lane_mask, int width = warpSize, unsigned mask = 0xffffffff) {
  return __shfl_xor_sync(mask, value, lane_mask, width);
}
template <typename T>
__device__ __forceinline__ T WARP_SHFL(T value, int lane, int width = warpSize, unsigned mask = 0xffffffff) {
  return __shfl_sync(mask, value, lane, width);
}
#define CUDA_KERNEL_ASSERT(condition)                                                    \
  if (!(condition)) {                                                                    \
    __assert_fail(#condition, __FILE__, static_cast<unsigned>(__LINE__), __func__);      \
  }
#define CUDA_KERNEL_LOOP_TYPE(i, n, index_type)                                                       \
  int64_t _i_n_d_e_x = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;                   \
  for (index_type i = _i_n_d_e_x; _i_n_d_e_x < (n); _i_n_d_e_x += blockDim.x * gridDim.x, i = _i_n_d_e_x)
#define CUDA_KERNEL_LOOP(i, n) CUDA_KERNEL_LOOP_TYPE(i, n, int)
#endif
