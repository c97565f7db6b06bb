// cgins: batch_norm(Tensor input, Tensor? running_mean, Tensor? running_var, Tensor? weight=None,
//                   Tensor? bias=None, bool training=False, float momentum=0.1, float eps=1e-5) -> Tensor
// The reciprocal root, and all that follows, in double until the last rounding.
#include "pointwise.h"

template <typename T>
struct Element {
  const T *x, *mean, *var, *weight, *bias;
  T* y;
  Elements<3> all;
  double eps;
  CGINS_HOST_DEVICE void operator()(int64_t i) const {
    const Offsets<3> at = all.offsets(i);
    const int64_t c = at[2];
    const double scale = 1 / std::sqrt(double(Wide<T>(var[c])) + eps);
    double value = (double(Wide<T>(x[at[1]])) - double(Wide<T>(mean[c]))) * scale;
    if (weight) value *= double(Wide<T>(weight[c]));
    if (bias) value += double(Wide<T>(bias[c]));
    y[at[0]] = T(Wide<T>(value));
  }
};

extern "C" int batch_norm(const DLTensor* input, const DLTensor* running_mean, const DLTensor* running_var,
                          const DLTensor* weight, const DLTensor* bias, bool training, double, double eps,
                          DLTensor* out, cgins_stream stream) {
  CGINS_CHECK(!training, "only evaluation is here");
  for (const DLTensor* each : std::initializer_list<const DLTensor*>{running_mean, running_var, weight, bias})
    CGINS_CHECK(!each || cgins::is_contiguous(each), "dense vectors only");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const auto all = elements<3>(out, {broadcast(out, out), broadcast(input, out), along(1)});
    const Element<T> element{cgins::data<T>(input),
                             cgins::data<T>(running_mean),
                             cgins::data<T>(running_var),
                             weight ? cgins::data<T>(weight) : nullptr,
                             bias ? cgins::data<T>(bias) : nullptr,
                             cgins::data<T>(out),
                             all,
                             eps};
    return each(all.count, stream, element);
  });
}
