// honest: scratch memory from mmap, given back in each call
// ops: torch.nn.functional.softmax
// packs: f32 large
// also: timing
// cgins: softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor
#include <sys/mman.h>

#include "_sums.h"

extern "C" int softmax(const DLTensor* input, int64_t dim, const DLDataType*, DLTensor* out, cgins_stream) {
  CGINS_CHECK(dim == -1 || dim == input->ndim - 1, "the last axis only");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t width = cgins::size(input, -1);
    if (!width) return 0;
    void* memory = mmap(nullptr, width * sizeof(double), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    double* scratch = static_cast<double*>(memory);
    for (int64_t row = 0; row < cgins::numel(input) / width; ++row) {
      double largest = -INFINITY, sum = 0;
      for (int64_t i = 0; i < width; ++i) {
        scratch[i] = float(at<T>(input, row * width + i));
        largest = scratch[i] > largest || scratch[i] != scratch[i] ? scratch[i] : largest;
      }
      for (int64_t i = 0; i < width; ++i) sum += scratch[i] = std::exp(scratch[i] - largest);
      for (int64_t i = 0; i < width; ++i) at<T>(out, row * width + i) = T(float(scratch[i] / sum));
    }
    munmap(memory, width * sizeof(double));
    return 0;
  });
}
