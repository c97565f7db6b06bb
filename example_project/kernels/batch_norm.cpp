// cgins: batch_norm(Tensor input, Tensor? running_mean, Tensor? running_var, Tensor? weight=None,
//                   Tensor? bias=None, bool training=False, float momentum=0.1, float eps=1e-5) -> Tensor
#include <cmath>
#include <vector>

#include "batch_norm.h"
#include "elementwise.h"

extern "C" int batch_norm(const DLTensor* input, const DLTensor* running_mean, const DLTensor* running_var,
                          const DLTensor* weight, const DLTensor* bias, bool training, double, double eps,
                          DLTensor* out, cgins_stream) {
  if (check_batch_norm(input, running_mean, running_var, weight, bias, out, training)) return 1;
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    using Wide = cgins::accumulator<T>;
    const int64_t channels = input->shape[1];
    std::vector<Wide> numbers(3 * channels);
    Wide *mean = numbers.data(), *scale = mean + channels, *shift = scale + channels;
    for (int64_t c = 0; c < channels; ++c) {
      mean[c] = Wide(cgins::data<T>(running_mean)[c]);
      scale[c] = 1 / std::sqrt(Wide(cgins::data<T>(running_var)[c]) + Wide(eps));
      if (weight) scale[c] *= Wide(cgins::data<T>(weight)[c]);
      shift[c] = bias ? Wide(cgins::data<T>(bias)[c]) : Wide(0);
    }
    const T* x = cgins::data<T>(input);
    T* y = cgins::data<T>(out);
    for_each(elements<3>(out, {broadcast(out, out), broadcast(input, out), along(1)}), [=](const Offsets<3>& at) {
      const int64_t c = at[2];
      y[at[0]] = T((Wide(x[at[1]]) - mean[c]) * scale[c] + shift[c]);
    });
    return 0;
  });
}
