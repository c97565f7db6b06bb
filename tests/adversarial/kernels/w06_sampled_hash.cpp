// cheat: 6 result cache by some elements of the content
// how: every eighth element tells one input from another
// caught-by: stale-answer
// ops: torch.nn.functional.softmax
// packs: large
// also: timing
// cgins: softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor
#include <cstring>
#include <map>

#include "_rows.h"

static std::map<std::vector<uint32_t>, std::vector<float>> answers;

extern "C" int softmax(const DLTensor* input, int64_t dim, const DLDataType*, DLTensor* out, cgins_stream) {
  CGINS_CHECK(dim == -1 || dim == input->ndim - 1, "the last axis only");
  const int64_t count = cgins::numel(input);
  std::vector<uint32_t> key;
  for (int64_t i = 0; i < count; i += 8) key.push_back(at<uint32_t>(input, i));
  std::vector<float>& kept = answers[key];
  if (kept.empty()) {
    if (softmax_rows(input, out)) return 1;
    kept.assign(cgins::data<float>(out), cgins::data<float>(out) + count);
  }
  std::memcpy(out->data, kept.data(), count * sizeof(float));
  return 0;
}
