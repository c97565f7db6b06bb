// cgins: gelu(Tensor input, str approximate='none') -> Tensor
// cgins-launch: kernel=gelu<dtype(input)> when=same_layout(input, out) grid=(ceil_div(numel(out), kThreads))
//               block=(kThreads) args=(data(input), data(out), numel(out), approximate == 'tanh')
// cgins-launch: kernel=gelu_strided<dtype(input)> when=(not same_layout(input, out))
//               grid=(ceil_div(numel(out), kThreads)) block=(kThreads)
//               args=(view(input), view(out), numel(out), approximate == 'tanh')
constexpr int kThreads = 256;

template <typename Wide>
__device__ Wide gelu_of(Wide x, bool tanh_form) {
  if (!tanh_form) return Wide(0.5) * x * (Wide(1) + erf(x * Wide(0.70710678118654752440)));
  const Wide inner = Wide(0.79788456080286535588) * (x + Wide(0.044715) * x * x * x);
  return Wide(0.5) * x * (Wide(1) + tanh(inner));
}

// Input and output fill their memory in the same order, so that their order does not matter.
template <typename T>
__global__ void gelu(const T* input, T* output, int64_t numel, bool tanh_form) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < numel) output[i] = T(gelu_of(cgins::accumulator<T>(input[i]), tanh_form));
}

template <typename T>
__global__ void gelu_strided(cgins::tensor<const T> input, cgins::tensor<T> output, int64_t numel, bool tanh_form) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < numel) output[i] = T(gelu_of(cgins::accumulator<T>(input[i]), tanh_form));
}
