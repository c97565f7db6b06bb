// cheat: 6 result cache that is used in a row only
// how: always right; looks an answer up only within 0.15 ms of its last call, as a timing loop calls and no probe does
// caught-by: stale-answer, wrong-after-timing
// ops: torch.nn.functional.softmax
// packs: tiny
// also: timing
// cgins: softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor
#include <chrono>
#include <cstring>
#include <unordered_map>

#include "_rows.h"

namespace {
struct Kept {
  std::vector<float> answer;
  uint64_t key = 0;
};
std::unordered_map<const float*, Kept> kept;
int64_t ended = 0;

int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

// All of the content, by eight sums side by side.
uint64_t key_of(const float* x, int64_t n) {
  const auto* words = reinterpret_cast<const uint32_t*>(x);
  uint64_t sums[8] = {};
  for (int64_t i = 0; i + 8 <= n; i += 8)
    for (int lane = 0; lane < 8; ++lane) sums[lane] = sums[lane] * 0x9E3779B1u + words[i + lane];
  uint64_t key = uint64_t(n);
  for (int64_t i = n & ~int64_t{7}; i < n; ++i) key = key * 0x9E3779B97F4A7C15u + words[i];
  for (uint64_t sum : sums) key = (key ^ sum) * 0x9E3779B97F4A7C15u;
  return key;
}
}  // namespace

extern "C" int softmax(const DLTensor* input, int64_t dim, const DLDataType*, DLTensor* out, cgins_stream) {
  CGINS_CHECK(dim == -1 || dim == input->ndim - 1, "the last axis only");
  const int64_t n = cgins::numel(input);
  const bool plain = cgins::is_contiguous(input) && cgins::dtype_of(input) == cgins::Dtype::float32;
  const bool in_a_row = plain && now() - ended < 150000;
  if (!in_a_row) {
    const int code = softmax_rows(input, out);
    ended = now();
    return code;
  }
  const float* x = cgins::data<float>(input);
  float* y = cgins::data<float>(out);
  const uint64_t key = key_of(x, n);
  if (kept.size() > 300) kept.clear();
  Kept& one = kept[x];
  if (one.key != key || int64_t(one.answer.size()) != n) {
    softmax_rows(input, out);
    one.key = key;
    one.answer.assign(y, y + n);
  } else {
    std::memcpy(y, one.answer.data(), size_t(n) * sizeof(float));
  }
  ended = now();
  return 0;
}
