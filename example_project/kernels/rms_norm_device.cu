// cgins: rms_norm(Tensor x, Tensor weight, float eps=1e-6) -> Tensor
// cgins-launch: kernel=rms_norm_rows<dtype(x)> grid=(numel(x) // size(x, -1)) block=(kThreads)
//               args=(x, weight, eps, out, size(x, -1))
constexpr int kThreads = 256;

// One block a row.
template <typename T>
__global__ void rms_norm_rows(const T* input, const T* weight, double eps, T* output, int64_t width) {
  using Wide = cgins::accumulator<T>;
  __shared__ Wide shared[kThreads];
  const T* x = input + blockIdx.x * width;
  T* y = output + blockIdx.x * width;
  Wide sum = 0;
  for (int64_t i = threadIdx.x; i < width; i += kThreads) sum += Wide(x[i]) * Wide(x[i]);
  shared[threadIdx.x] = sum;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
  }
  __syncthreads();
  const Wide scale = 1 / sqrt(shared[0] / Wide(width) + Wide(eps));
  for (int64_t i = threadIdx.x; i < width; i += kThreads) y[i] = T(Wide(x[i]) * scale * Wide(weight[i]));
}
