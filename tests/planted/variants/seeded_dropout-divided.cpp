// cgins: seeded_dropout(Tensor x, float p, int seed) -> Tensor
// What is kept is divided by 1 − p, not multiplied by its reciprocal.
#include "hash.h"
#include "pointwise.h"

template <typename T>
struct Element {
  const T* x;
  T* y;
  Elements<3> all;
  uint64_t threshold;
  uint32_t seed;
  double p;
  CGINS_HOST_DEVICE void operator()(int64_t i) const {
    const Offsets<3> at = all.offsets(i);
    const bool kept = hash(seed, uint32_t(at[2])) >= threshold;
    y[at[0]] = T(kept ? Wide<T>(x[at[1]]) / Wide<T>(1 - p) : Wide<T>(0));
  }
};

extern "C" int seeded_dropout(const DLTensor* x, double p, int64_t seed, DLTensor* out, cgins_stream stream) {
  return cgins::dispatch_floating(x, [&](auto zero) {
    using T = decltype(zero);
    const auto all = elements<3>(out, {broadcast(out, out), broadcast(x, out), row_major(out)});
    const Element<T> element{cgins::data<T>(x), cgins::data<T>(out), all, drop_below(p), uint32_t(seed), p};
    return each(all.count, stream, element);
  });
}
