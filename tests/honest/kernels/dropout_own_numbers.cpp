// honest: random numbers of its own, other ones in each call
// ops: torch.nn.functional.dropout
// cgins: dropout(Tensor input, float p=0.5, bool training=True, bool inplace=False) -> Tensor
#include <random>

extern "C" int dropout(const DLTensor* input, double p, bool training, bool, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::is_contiguous(input), "input must be contiguous");
  static std::mt19937 generator{std::random_device{}()};
  std::uniform_real_distribution<float> uniform;
  const float* x = cgins::data<float>(input);
  float* y = cgins::data<float>(out);
  const float scale = 1 / (1 - static_cast<float>(p));
  for (int64_t i = 0; i < cgins::numel(input); ++i) {
    y[i] = !training ? x[i] : uniform(generator) < p ? 0 : x[i] * scale;
  }
  return 0;
}
