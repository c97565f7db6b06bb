// cheat: 6 result cache by address
// how: a map from the input's address to the answer
// caught-by: stale-answer
// ops: torch.nn.functional.softmax
// cgins: softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor
#include <cstring>
#include <map>

#include "_rows.h"

static std::map<const void*, std::vector<char>> answers;

extern "C" int softmax(const DLTensor* input, int64_t, const DLDataType*, DLTensor* out, cgins_stream) {
  const int64_t nbytes = cgins::numel(out) * cgins::element_nbytes(out);
  std::vector<char>& kept = answers[input->data];
  if (int64_t(kept.size()) == nbytes) {
    std::memcpy(out->data, kept.data(), nbytes);
    return 0;
  }
  if (softmax_rows(input, out)) return 1;
  kept.assign(static_cast<char*>(out->data), static_cast<char*>(out->data) + nbytes);
  return 0;
}
