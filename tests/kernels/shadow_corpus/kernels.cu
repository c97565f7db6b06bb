// CUDA extensions as people and language models write them.
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define CHECK_CUDA(x) TORCH_CHECK(x.device().is_cuda(), #x " must be a CUDA tensor")
#define CHECK_INPUT(x) \
  CHECK_CUDA(x);       \
  TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")

// 1: raw float pointers on the default stream.
__global__ void add_kernel(const float* a, const float* b, float* out, int size) {
  int idx = blockIdx.x * blockDim.x + threadIdx.x;
  if (idx < size) out[idx] = a[idx] + b[idx];
}

torch::Tensor elementwise_add(torch::Tensor a, torch::Tensor b) {
  auto size = a.numel();
  auto out = torch::zeros_like(a);
  const int block_size = 256;
  const int num_blocks = (size + block_size - 1) / block_size;
  add_kernel<<<num_blocks, block_size>>>(a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), size);
  return out;
}

// 2: every floating-point type, on torch's stream.
template <typename scalar_t>
__global__ void gelu_kernel(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, size_t n) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    const float v = static_cast<float>(x[i]);
    y[i] = static_cast<scalar_t>(0.5f * v * (1.0f + erff(v * 0.70710678118654752f)));
  }
}

torch::Tensor gelu(const torch::Tensor& input) {
  CHECK_INPUT(input);
  const at::cuda::OptionalCUDAGuard guard(device_of(input));
  auto output = torch::empty(input.sizes(), input.options());
  const int64_t n = input.numel();
  if (n == 0) return output;
  auto stream = at::cuda::getCurrentCUDAStream();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, input.scalar_type(), "gelu", [&] {
    gelu_kernel<scalar_t><<<at::ceil_div<int64_t>(n, 256), 256, 0, stream>>>(
        input.data_ptr<scalar_t>(), output.data_ptr<scalar_t>(), n);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return output;
}

// 3: packed accessors.
template <typename scalar_t>
__global__ void transpose_kernel(torch::PackedTensorAccessor32<scalar_t, 2, torch::RestrictPtrTraits> in,
                                 torch::PackedTensorAccessor32<scalar_t, 2, torch::RestrictPtrTraits> out) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < in.size(0) && column < in.size(1)) out[column][row] = in[row][column];
}

torch::Tensor transposed(torch::Tensor x) {
  auto out = torch::empty({x.size(1), x.size(0)}, x.options());
  const dim3 threads(16, 16), blocks((x.size(1) + 15) / 16, (x.size(0) + 15) / 16);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "transposed", ([&] {
    transpose_kernel<scalar_t><<<blocks, threads>>>(
        x.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(),
        out.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>());
  }));
  AT_CUDA_CHECK(cudaGetLastError());
  return out;
}

// 4: shared memory and warps; a softmax over rows with an accumulator type.
template <typename scalar_t>
__global__ void softmax_kernel(const scalar_t* x, scalar_t* y, int columns) {
  using acc_t = at::opmath_type<scalar_t>;
  extern __shared__ float shared[];
  const scalar_t* row = x + static_cast<int64_t>(blockIdx.x) * columns;
  acc_t largest = -std::numeric_limits<acc_t>::infinity();
  for (int i = threadIdx.x; i < columns; i += blockDim.x) largest = max(largest, static_cast<acc_t>(row[i]));
  for (int offset = 16; offset > 0; offset /= 2)
    largest = max(largest, __shfl_xor_sync(0xffffffff, largest, offset));
  acc_t total = 0;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) total += exp(static_cast<acc_t>(row[i]) - largest);
  for (int offset = 16; offset > 0; offset /= 2) total += __shfl_xor_sync(0xffffffff, total, offset);
  if (threadIdx.x == 0) shared[0] = static_cast<float>(total);
  __syncthreads();
  for (int i = threadIdx.x; i < columns; i += blockDim.x)
    y[static_cast<int64_t>(blockIdx.x) * columns + i] =
        static_cast<scalar_t>(exp(static_cast<acc_t>(row[i]) - largest) / static_cast<acc_t>(shared[0]));
}

at::Tensor softmax_rows(at::Tensor x) {
  x = x.contiguous();
  auto y = at::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "softmax_rows", [&] {
    softmax_kernel<scalar_t><<<x.size(0), 32, sizeof(float), at::cuda::getCurrentCUDAStream().stream()>>>(
        x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), static_cast<int>(x.size(1)));
  });
  C10_CUDA_CHECK(cudaGetLastError());
  return y;
}

// 5: CUDA's own half, reinterpreted, with the intrinsics that torch's defines leave.
__global__ void half_fma_kernel(const __half* a, const __half* b, __half* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = __hfma(a[i], b[i], __float2half(1.0f));
}

torch::Tensor half_fma(torch::Tensor a, torch::Tensor b) {
  TORCH_CHECK(a.dtype() == torch::kFloat16, "a must be float16, not ", a.dtype());
  auto out = torch::empty_like(a);
  half_fma_kernel<<<(a.numel() + 127) / 128, 128>>>(reinterpret_cast<const __half*>(a.data_ptr<at::Half>()),
                                                    reinterpret_cast<const __half*>(b.data_ptr<at::Half>()),
                                                    reinterpret_cast<__half*>(out.data_ptr<at::Half>()), a.numel());
  return out;
}

// 6: bfloat16 through torch's type, atomics, fp32 accumulation.
__global__ void column_sum_kernel(const c10::BFloat16* x, float* out, int rows, int columns) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  float total = 0;
  for (int row = blockIdx.y; row < rows; row += gridDim.y)
    if (column < columns) total += x[row * columns + column];
  if (column < columns) atomicAdd(out + column, total);
}

torch::Tensor column_sum(torch::Tensor x) {
  auto out = torch::zeros({x.size(1)}, x.options().dtype(torch::kFloat32));
  const dim3 grid((x.size(1) + 63) / 64, 4);
  column_sum_kernel<<<grid, 64>>>(x.data_ptr<at::BFloat16>(), out.data_ptr<float>(), x.size(0), x.size(1));
  return out.to(torch::kBFloat16);
}

// 7: optional weights, several results, torch's operators around a kernel, properties of the device.
std::vector<torch::Tensor> normalized(torch::Tensor x, c10::optional<torch::Tensor> weight, double eps) {
  const cudaDeviceProp* properties = at::cuda::getCurrentDeviceProperties();
  TORCH_CHECK(properties->warpSize == 32 && properties->multiProcessorCount > 0);
  auto scale = (x.pow(2).mean(-1, true) + eps).rsqrt();
  auto out = elementwise_add((x * scale).contiguous(), torch::zeros_like(x));
  if (weight.has_value()) out = out * weight.value();
  return {out, scale.squeeze(-1)};
}

// 8: an error of CUDA.
torch::Tensor too_many_threads(torch::Tensor x) {
  add_kernel<<<1, 4096>>>(x.data_ptr<float>(), x.data_ptr<float>(), x.data_ptr<float>(), 1);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return x;
}

// 9: the device of new tensors, the stream's handle, a guard.
std::tuple<torch::Tensor, int64_t, int64_t> places(int64_t index) {
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(index));
  auto made = torch::ones({3}, torch::TensorOptions().dtype(torch::kFloat32).device(torch::kCUDA));
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  return {made, made.get_device(), reinterpret_cast<int64_t>(stream)};
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("elementwise_add", &elementwise_add, "a + b");
  m.def("gelu", &gelu);
  m.def("transposed", &transposed);
  m.def("softmax_rows", &softmax_rows);
  m.def("half_fma", &half_fma);
  m.def("column_sum", &column_sum);
  m.def("normalized", &normalized, py::arg("x"), py::arg("weight") = py::none(), py::arg("eps") = 1e-6);
  m.def("too_many_threads", &too_many_threads);
  m.def("places", &places);
}
