// honest: scratch memory that ends at a page nobody may touch, so that an overflow would be a fault and not a wrong answer
// ops: torch.nn.functional.softmax
// packs: f32 bf16
// cgins: softmax(Tensor input, int dim, ScalarType? dtype=None) -> Tensor
#include <sys/mman.h>
#include <unistd.h>

#include "_elements.h"

namespace {
class Scratch {
 public:
  explicit Scratch(int64_t count) {
    const size_t page = size_t(sysconf(_SC_PAGESIZE)), wanted = size_t(count) * sizeof(double);
    nbytes_ = (wanted + page - 1) / page * page + page;
    void* const memory = mmap(nullptr, nbytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    begin_ = static_cast<char*>(memory);
    if (mmap(begin_ + nbytes_ - page, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) return;
    data = reinterpret_cast<double*>(begin_ + nbytes_ - page - wanted);
  }
  ~Scratch() {
    if (begin_) munmap(begin_, nbytes_);
  }
  Scratch(const Scratch&) = delete;
  double* data = nullptr;

 private:
  char* begin_ = nullptr;
  size_t nbytes_ = 0;
};
}  // namespace

extern "C" int softmax(const DLTensor* input, int64_t dim, const DLDataType* dtype, DLTensor* out, cgins_stream) {
  CGINS_CHECK(!dtype, "no other dtype");
  CGINS_CHECK(input->ndim > 0 && (dim == -1 || dim == input->ndim - 1), "the last axis only");
  const int64_t width = cgins::size(input, -1);
  if (cgins::numel(input) == 0) return 0;
  Scratch scratch(width);
  CGINS_CHECK(scratch.data, "no memory");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t first = 0; first < cgins::numel(input); first += width) {
      double top = -INFINITY, sum = 0;
      bool wrong = false;
      for (int64_t i = 0; i < width; ++i) {
        scratch.data[i] = elements::wide(elements::at<T>(input, first + i));
        wrong |= scratch.data[i] != scratch.data[i];
        top = std::fmax(top, scratch.data[i]);
      }
      for (int64_t i = 0; i < width; ++i) sum += scratch.data[i] = std::exp(scratch.data[i] - top);
      for (int64_t i = 0; i < width; ++i) elements::at<T>(out, first + i) = elements::rounded<T>(wrong ? NAN : scratch.data[i] / sum);
    }
    return 0;
  });
}
