// cgins: varlen_mean(Tensor x, Tensor cu_seqlens) -> Tensor
#include <cgins.h>

namespace {
template <typename T>
T& at(const DLTensor* tensor, int64_t index) {
  return cgins::data<T>(tensor)[cgins::offset_of(tensor, index)];
}
}  // namespace

// The mean of each packed sequence, 0 of an empty one.
extern "C" int varlen_mean(const DLTensor* x, const DLTensor* cu_seqlens, DLTensor* out, cgins_stream) {
  const int64_t width = x->shape[1];
  for (int64_t i = 0; i < out->shape[0]; ++i) {
    const int64_t begin = at<int64_t>(cu_seqlens, i), end = at<int64_t>(cu_seqlens, i + 1), count = end - begin;
    for (int64_t j = 0; j < width; ++j) {
      double sum = 0;
      for (int64_t token = begin; token < end; ++token) sum += at<float>(x, token * width + j);
      at<float>(out, i * width + j) = count ? float(sum / double(count)) : 0.0f;
    }
  }
  return 0;
}
