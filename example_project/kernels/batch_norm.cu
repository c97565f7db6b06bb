// cgins: batch_norm(Tensor input, Tensor? running_mean, Tensor? running_var, Tensor? weight=None,
//                   Tensor? bias=None, bool training=False, float momentum=0.1, float eps=1e-5) -> Tensor
#include "batch_norm.h"
#include "elementwise.cuh"

// One thread an element: the four numbers of a channel come from the cache.
template <typename T>
__global__ void normalize_elements(const T* input, T* output, Elements<3> elements, const T* mean, const T* var,
                                   const T* weight, const T* bias, double eps) {
  using Wide = cgins::accumulator<T>;
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i >= elements.count) return;
  const Offsets<3> at = elements.offsets(i);
  const int64_t c = at[2];
  Wide scale = 1 / sqrt(Wide(var[c]) + Wide(eps));
  if (weight) scale *= Wide(weight[c]);
  const Wide shift = bias ? Wide(bias[c]) : Wide(0);
  output[at[0]] = T((Wide(input[at[1]]) - Wide(mean[c])) * scale + shift);
}

extern "C" int batch_norm(const DLTensor* input, const DLTensor* running_mean, const DLTensor* running_var,
                          const DLTensor* weight, const DLTensor* bias, bool training, double, double eps,
                          DLTensor* out, cgins_stream stream) {
  if (check_batch_norm(input, running_mean, running_var, weight, bias, out, training)) return 1;
  if (cgins::numel(out) == 0) return 0;
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const auto all = elements<3>(out, {broadcast(out, out), broadcast(input, out), along(1)});
    normalize_elements<T><<<element_blocks(all.count), kElementThreads, 0, stream>>>(
        cgins::data<const T>(input), cgins::data<T>(out), all, cgins::data<const T>(running_mean),
        cgins::data<const T>(running_var), weight ? cgins::data<const T>(weight) : nullptr,
        bias ? cgins::data<const T>(bias) : nullptr, eps);
    CGINS_LAUNCH_CHECK();
    return 0;
  });
}
