// cgins: seeded_dropout(Tensor x, float p, int seed) -> Tensor
#include "elementwise.cuh"
#include "hash.h"

template <typename T>
__global__ void drop_elements(const T* input, T* output, Elements<3> elements, uint64_t threshold, uint32_t seed,
                              cgins::accumulator<T> scale) {
  using Wide = cgins::accumulator<T>;
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i >= elements.count) return;
  const Offsets<3> at = elements.offsets(i);
  const bool kept = hash(seed, uint32_t(at[2])) >= threshold;
  output[at[0]] = T(kept ? Wide(input[at[1]]) * scale : Wide(0));
}

extern "C" int seeded_dropout(const DLTensor* x, double p, int64_t seed, DLTensor* out, cgins_stream stream) {
  CGINS_CHECK(p >= 0 && p < 1, "p is %g, not in [0, 1)", p);
  CGINS_CHECK(out->ndim <= kMaxDims, "%d dimensions, more than %d", out->ndim, kMaxDims);
  if (check_types(x, {out})) return 1;
  if (cgins::numel(out) == 0) return 0;
  return cgins::dispatch_floating(x, [&](auto zero) {
    using T = decltype(zero);
    const auto all = elements<3>(out, {broadcast(out, out), broadcast(x, out), row_major(out)});
    drop_elements<T><<<element_blocks(all.count), kElementThreads, 0, stream>>>(
        cgins::data<const T>(x), cgins::data<T>(out), all, drop_below(p), uint32_t(seed), 1 / (1 - p));
    CGINS_LAUNCH_CHECK();
    return 0;
  });
}
