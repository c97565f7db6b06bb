// cgins: seeded_dropout(Tensor x, float p, int seed) -> Tensor
#include "elementwise.h"
#include "hash.h"

extern "C" int seeded_dropout(const DLTensor* x, double p, int64_t seed, DLTensor* out, cgins_stream) {
  CGINS_CHECK(p >= 0 && p < 1, "p is %g, not in [0, 1)", p);
  CGINS_CHECK(out->ndim <= kMaxDims, "%d dimensions, more than %d", out->ndim, kMaxDims);
  if (check_types(x, {out})) return 1;
  const uint64_t threshold = drop_below(p);
  return cgins::dispatch_floating(x, [&](auto zero) {
    using T = decltype(zero);
    using Wide = cgins::accumulator<T>;
    const T* input = cgins::data<T>(x);
    T* output = cgins::data<T>(out);
    const Wide scale = Wide(1 / (1 - p));
    for_each(elements<3>(out, {broadcast(out, out), broadcast(x, out), row_major(out)}),
             [=](const Offsets<3>& at) {
               const bool kept = hash(uint32_t(seed), uint32_t(at[2])) >= threshold;
               output[at[0]] = T(kept ? Wide(input[at[1]]) * scale : Wide(0));
             });
    return 0;
  });
}
