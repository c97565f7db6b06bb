// honest: updates its running statistics, as the op does
// ops: torch.nn.functional.batch_norm
// packs: f32 f16 bf16
// cgins: batch_norm(Tensor input, Tensor(a!)? running_mean, Tensor(b!)? running_var, Tensor? weight=None, Tensor? bias=None, bool training=False, float momentum=0.1, float eps=1e-05) -> Tensor
#include "_sums.h"

extern "C" int batch_norm(const DLTensor* input, DLTensor* running_mean, DLTensor* running_var, const DLTensor* weight,
                          const DLTensor* bias, bool training, double momentum, double eps, DLTensor* out,
                          cgins_stream) {
  CGINS_CHECK(training && running_mean && running_var && input->ndim == 4, "images in training only");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t channels = input->shape[1], area = input->shape[2] * input->shape[3];
    const int64_t count = input->shape[0] * area;
    for (int64_t c = 0; c < channels; ++c) {
      const auto place = [=](int64_t i) { return (i / area * channels + c) * area + i % area; };
      double mean = 0, squares = 0;
      for (int64_t i = 0; i < count; ++i) mean += float(at<T>(input, place(i)));
      mean /= double(count);
      for (int64_t i = 0; i < count; ++i) squares += std::pow(float(at<T>(input, place(i))) - mean, 2);
      const double scale = 1 / std::sqrt(squares / double(count) + eps);
      for (int64_t i = 0; i < count; ++i) {
        double value = (float(at<T>(input, place(i))) - mean) * scale;
        if (weight) value *= float(at<T>(weight, c));
        if (bias) value += float(at<T>(bias, c));
        at<T>(out, place(i)) = T(float(value));
      }
      const auto moved = [=](float old, double now) { return T(float((1 - momentum) * old + momentum * now)); };
      at<T>(running_mean, c) = moved(float(at<T>(running_mean, c)), mean);
      at<T>(running_var, c) = moved(float(at<T>(running_var, c)), squares / double(count - 1));
    }
    return 0;
  });
}
