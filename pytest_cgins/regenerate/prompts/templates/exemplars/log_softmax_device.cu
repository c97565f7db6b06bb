// exemplar: torch.nn.functional.log_softmax, reduction, device, device
// cgins: log_softmax(Tensor input, int dim) -> Tensor
// cgins-launch: kernel=log_softmax_rows<dtype(input)> require=(is_contiguous(input), is_contiguous(out))
//               grid=(numel(input) // size(input, dim)) block=(min(1024, max(32, next_power_of_2(size(input, dim)))))
//               smem=32 * sizeof(double) args=(input, out, size(input, dim), stride(input, dim))

// One block a row: `width` elements, `step` apart.
template <typename Wide>
__device__ Wide block_reduce(Wide value, bool largest, Wide* shared) {
  for (int offset = 16; offset > 0; offset /= 2) {
    const Wide other = __shfl_xor_sync(0xffffffffu, value, offset);
    value = largest ? fmax(value, other) : value + other;
  }
  const int warps = blockDim.x / 32;
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = shared[0];
  for (int warp = 1; warp < warps; ++warp) value = largest ? fmax(value, shared[warp]) : value + shared[warp];
  return value;
}

template <typename T>
__global__ void log_softmax_rows(const T* input, T* output, int64_t width, int64_t step) {
  using Wide = cgins::accumulator<T>;
  extern __shared__ __align__(8) unsigned char memory[];
  Wide* shared = reinterpret_cast<Wide*>(memory);
  const int64_t start = blockIdx.x / step * step * width + blockIdx.x % step;
  const T* x = input + start;
  T* y = output + start;
  Wide largest = -INFINITY;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) largest = fmax(largest, Wide(x[i * step]));
  largest = block_reduce(largest, true, shared);
  Wide sum = 0;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) sum += exp(Wide(x[i * step]) - largest);
  sum = log(block_reduce(sum, false, shared));
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) y[i * step] = T(Wide(x[i * step]) - largest - sum);
}
