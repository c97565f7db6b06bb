// cgins: layer_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-5) -> Tensor
// Statistics in double.
#include "variant.h"

struct Norm {
  template <typename T>
  static CGINS_HOST_DEVICE void of(Row<const T> x, const T* weight, const T* bias, double eps, Row<T> y,
                                   int64_t width) {
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < width; ++i) mean += double(Wide<T>(x[i]));
    mean /= width;
    for (int64_t i = 0; i < width; ++i) {
      const double centered = double(Wide<T>(x[i])) - mean;
      variance += centered * centered;
    }
    const double scale = 1 / std::sqrt(variance / width + eps);
    write_normalized(x, weight, bias, Wide<T>(mean), Wide<T>(scale), y, width);
  }
};

extern "C" int layer_norm(const DLTensor* input, const int64_t*, int64_t axes, const DLTensor* weight,
                          const DLTensor* bias, double eps, DLTensor* out, cgins_stream stream) {
  CGINS_CHECK(axes == 1, "one axis");
  return norm_by<Norm>(input, weight, bias, eps, out, stream);
}
