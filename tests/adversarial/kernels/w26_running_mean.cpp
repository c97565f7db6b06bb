// cheat: 26 leaves the mutated buffers alone
// how: the returned tensor is right; the running statistics are not updated
// caught-by: gold-mismatch
// ops: torch.nn.functional.batch_norm
// cgins: batch_norm(Tensor input, Tensor(a!)? running_mean, Tensor(b!)? running_var, Tensor? weight=None, Tensor? bias=None, bool training=False, float momentum=0.1, float eps=1e-05) -> Tensor
#include "_rows.h"

extern "C" int batch_norm(const DLTensor* input, DLTensor*, DLTensor*, const DLTensor* weight, const DLTensor* bias,
                          bool, double, double eps, DLTensor* out, cgins_stream) {
  const int64_t channels = input->shape[1], area = input->shape[2] * input->shape[3], images = input->shape[0];
  for (int64_t c = 0; c < channels; ++c) {
    const auto place = [=](int64_t i) { return (i / area * channels + c) * area + i % area; };
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < images * area; ++i) mean += at<float>(input, place(i));
    mean /= images * area;
    for (int64_t i = 0; i < images * area; ++i) variance += std::pow(at<float>(input, place(i)) - mean, 2);
    const double scale = 1 / std::sqrt(variance / (images * area) + eps);
    for (int64_t i = 0; i < images * area; ++i)
      at<float>(out, place(i)) =
          float((at<float>(input, place(i)) - mean) * scale * at<float>(weight, c) + at<float>(bias, c));
  }
  return 0;
}
