// honest: a table of 16 MB that the first call builds and each call looks into, beside a base without one
// ops: torch.nn.functional.relu
// also: base
// cgins: relu(Tensor input, bool inplace=False) -> Tensor
#include <vector>
#include <cgins.h>

extern "C" int relu(const DLTensor* input, bool, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::is_contiguous(input), "contiguous tensors only");
  static const std::vector<float> table(4 << 20, 0.0f);
  const float* x = cgins::data<float>(input);
  float* y = cgins::data<float>(out);
  const int64_t n = cgins::numel(input);
  for (int64_t i = 0; i < n; ++i) {
    y[i] = x[i] < 0 ? table[(i * 4093) % table.size()] : x[i];
  }
  return 0;
}
