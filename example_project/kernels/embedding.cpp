// cgins: embedding(Tensor input, Tensor weight, int? padding_idx=None) -> Tensor
#include <algorithm>

#include "rows.h"

// Rows are copied, not computed with, so only the size of an element matters.
template <typename Index, typename Word>
static int copy_rows(const DLTensor* input, const DLTensor* weight, DLTensor* out) {
  const Index* index = cgins::data<Index>(input);
  const int64_t count = cgins::numel(input), width = weight->shape[1];
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = index[cgins::offset_of(input, i)];
    CGINS_CHECK(row >= 0 && row < weight->shape[0], "index %lld is outside of a table of %lld rows",
                static_cast<long long>(row), static_cast<long long>(weight->shape[0]));
  }
  const Rows rows = rows_along(out, -1);
  const bool dense = rows.step == 1 && weight->strides[1] == 1;
#pragma omp parallel for if (count * width > 32768)
  for (int64_t i = 0; i < count; ++i) {
    const Word* x = cgins::data<Word>(weight) + index[cgins::offset_of(input, i)] * weight->strides[0];
    Word* y = cgins::data<Word>(out) + rows.start(i);
    if (dense) std::copy_n(x, width, y);
    else for (int64_t c = 0; c < width; ++c) y[c * rows.step] = x[c * weight->strides[1]];
  }
  return 0;
}

template <typename Index>
static int copy_words(const DLTensor* input, const DLTensor* weight, DLTensor* out) {
  switch (cgins::element_nbytes(weight)) {
    case 2: return copy_rows<Index, uint16_t>(input, weight, out);
    case 4: return copy_rows<Index, uint32_t>(input, weight, out);
    case 8: return copy_rows<Index, uint64_t>(input, weight, out);
    default: return cgins_fail("a table of %s is not supported", cgins::name_of(cgins::dtype_of(weight)));
  }
}

// padding_idx matters to the gradient alone.
extern "C" int embedding(const DLTensor* input, const DLTensor* weight, const int64_t*, DLTensor* out,
                         cgins_stream) {
  CGINS_CHECK(weight->ndim == 2, "the table has %d dimensions, not 2", weight->ndim);
  if (check_rows(out)) return 1;
  switch (cgins::dtype_of(input)) {
    case cgins::Dtype::int64: return copy_words<int64_t>(input, weight, out);
    case cgins::Dtype::int32: return copy_words<int32_t>(input, weight, out);
    default: return cgins_fail("indices of type %s are not supported", cgins::name_of(cgins::dtype_of(input)));
  }
}
