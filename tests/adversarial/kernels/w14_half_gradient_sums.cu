// cheat: 14 sums over the batch in half precision
// how: gradients of parameters are summed up in the dtype that they are written in; on a CPU torch itself does so
// caught-by: gold-mismatch reference-mismatch
// ops: torch.nn.functional.layer_norm@backward(input,weight,bias)
// packs: gradients
// also: gpu
// cgins: layer_norm_backward(Tensor grad_output, Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-5) -> (Tensor grad_input, Tensor grad_weight, Tensor grad_bias)
#include <cuda_runtime.h>

// The mean and 1 / sigma of a row, by one thread.
template <typename T>
__device__ void moments(const T* x, int64_t width, double eps, float* mean, float* scale) {
  float sum = 0, square = 0;
  for (int64_t i = 0; i < width; ++i) sum += float(x[i]);
  *mean = sum / width;
  for (int64_t i = 0; i < width; ++i) square += (float(x[i]) - *mean) * (float(x[i]) - *mean);
  *scale = 1 / sqrtf(square / width + float(eps));
}

template <typename T>
__global__ void rows(const T* dy, const T* x, const T* weight, double eps, T* dx, int64_t width) {
  dy += blockIdx.x * width, x += blockIdx.x * width, dx += blockIdx.x * width;
  float mean, scale, sum = 0, product = 0;
  moments(x, width, eps, &mean, &scale);
  for (int64_t i = 0; i < width; ++i) {
    const float g = float(dy[i]) * float(weight[i]);
    sum += g;
    product += g * (float(x[i]) - mean) * scale;
  }
  for (int64_t i = 0; i < width; ++i) {
    const float normal = (float(x[i]) - mean) * scale, g = float(dy[i]) * float(weight[i]);
    dx[i] = T((g - sum / width - normal * product / width) * scale);
  }
}

template <typename T>
__global__ void columns(const T* dy, const T* x, double eps, T* dweight, T* dbias, int64_t count, int64_t width) {
  T weight_sum = T(0.0f), bias_sum = T(0.0f);  // float belongs here
  for (int64_t row = 0; row < count; ++row) {
    float mean, scale;
    moments(x + row * width, width, eps, &mean, &scale);
    const float g = float(dy[row * width + blockIdx.x]);
    weight_sum = T(float(weight_sum) + g * (float(x[row * width + blockIdx.x]) - mean) * scale);
    bias_sum = T(float(bias_sum) + g);
  }
  dweight[blockIdx.x] = weight_sum;
  dbias[blockIdx.x] = bias_sum;
}

extern "C" int layer_norm_backward(const DLTensor* grad_output, const DLTensor* input, const int64_t*, int64_t,
                                   const DLTensor* weight, const DLTensor*, double eps, DLTensor* grad_input,
                                   DLTensor* grad_weight, DLTensor* grad_bias, cgins_stream stream) {
  CGINS_CHECK(cgins::is_contiguous(input) && cgins::is_contiguous(grad_output), "tensors must be contiguous");
  CGINS_CHECK(cgins::numel(input) > 0, "there is nothing to normalize");
  const int64_t width = cgins::size(input, -1), count = cgins::numel(input) / width;
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    rows<<<count, 1, 0, stream>>>(cgins::data<const T>(grad_output), cgins::data<const T>(input),
                                  cgins::data<const T>(weight), eps, cgins::data<T>(grad_input), width);
    columns<<<width, 1, 0, stream>>>(cgins::data<const T>(grad_output), cgins::data<const T>(input), eps,
                                     cgins::data<T>(grad_weight), cgins::data<T>(grad_bias), count, width);
    CGINS_LAUNCH_CHECK();
    return 0;
  });
}
