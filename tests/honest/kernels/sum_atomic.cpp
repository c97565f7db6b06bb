// honest: threads add to one sum by compare-and-swap, in any order, and cgins.yaml says so
// ops: torch.sum
// packs: f32 f16 bf16
// yaml: {repeatable: tolerance}
// cgins: sum(Tensor input, int[] dim, bool keepdim=False) -> Tensor
#include <atomic>
#include <thread>

#include "_sums.h"

extern "C" int sum(const DLTensor* input, const int64_t* dim, int64_t dim_len, bool, DLTensor* out, cgins_stream) {
  return sum_rows(input, dim, dim_len, out, [](const std::vector<float>& row) {
    std::atomic<float> total{0};
    const auto add = [&](size_t first) {
      for (size_t i = first; i < row.size(); i += 2) {
        float old = total.load();
        while (!total.compare_exchange_weak(old, old + row[i])) {
        }
      }
    };
    std::thread other(add, 1);
    add(0);
    other.join();
    return total.load();
  });
}
