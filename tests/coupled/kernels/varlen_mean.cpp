// cgins: varlen_mean(Tensor x, Tensor cu_seqlens) -> Tensor
#include <cgins.h>

// The mean of each packed sequence, 0 of an empty one.
extern "C" int varlen_mean(const DLTensor* x, const DLTensor* cu_seqlens, DLTensor* out, cgins_stream) {
  const auto* rows = cgins::data<float>(x);
  const auto* ends = cgins::data<int64_t>(cu_seqlens);
  const int64_t width = x->shape[1];
  for (int64_t i = 0; i < out->shape[0]; ++i) {
    const int64_t count = ends[i + 1] - ends[i];
    for (int64_t j = 0; j < width; ++j) {
      double sum = 0;
      for (int64_t token = ends[i]; token < ends[i + 1]; ++token) sum += rows[token * width + j];
      cgins::data<float>(out)[i * width + j] = count ? float(sum / double(count)) : 0.0f;
    }
  }
  return 0;
}
