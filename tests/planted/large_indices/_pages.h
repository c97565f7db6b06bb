// Pages of a cache in the order of a table; `begin` says at which element a page begins.
#include "_bf16.h"

template <class Begin>
int copy_pages(const DLTensor* cache, const DLTensor* table, DLTensor* out, Begin begin) {
  CGINS_CHECK(cgins::dtype_of(table) == cgins::Dtype::int32 && cgins::is_contiguous(table), "a dense table of int32");
  const int64_t rows = cache->shape[1], width = cache->shape[2];
  uint16_t* to = bits(out);
  for (int64_t n = 0; n < cgins::numel(table); ++n) {
    const int page = cgins::data<int32_t>(table)[n];
    CGINS_CHECK(page >= 0 && page < cache->shape[0], "the cache has no such page");
    const uint16_t* from = bits(cache) + begin(page, cache->strides[0]);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t c = 0; c < width; ++c) *to++ = from[row * cache->strides[1] + c * cache->strides[2]];
  }
  return 0;
}
