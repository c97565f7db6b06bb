// cgins: embedding(Tensor input, Tensor weight, int? padding_idx=None) -> Tensor
#include "rows.h"

constexpr int kWarps = 8;

// One warp a row. Rows are copied, not computed with, so only the size of an element matters.
template <typename Index, typename Word>
__global__ void copy_rows(const Index* input, Rows in, const Word* weight, Rows table, Word* output, Rows out) {
  const int64_t row = blockIdx.x * int64_t(kWarps) + threadIdx.y;
  if (row >= out.count) return;
  const int64_t index = input[in.start(row / in.width) + row % in.width * in.step];
  const bool inside = index >= 0 && index < table.count;
  Word* y = output + out.start(row);
  for (int64_t c = threadIdx.x; c < out.width; c += 32)  // all bits set are NaN, where torch would trap
    y[c * out.step] = inside ? weight[index * table.stride[0] + c * table.step] : Word(-1);
}

template <typename Index, typename Word>
static int launch(const DLTensor* input, const DLTensor* weight, DLTensor* out, cgins_stream stream) {
  const Rows rows = rows_along(out, -1);
  if (check_grid(rows.count / kWarps)) return 1;
  if (rows.count == 0) return 0;
  copy_rows<<<(rows.count + kWarps - 1) / kWarps, dim3(32, kWarps), 0, stream>>>(
      cgins::data<const Index>(input), rows_along(input, -1), cgins::data<const Word>(weight),
      rows_along(weight, -1), cgins::data<Word>(out), rows);
  CGINS_LAUNCH_CHECK();
  return 0;
}

template <typename Index>
static int launch_words(const DLTensor* input, const DLTensor* weight, DLTensor* out, cgins_stream stream) {
  switch (cgins::element_nbytes(weight)) {
    case 2: return launch<Index, uint16_t>(input, weight, out, stream);
    case 4: return launch<Index, uint32_t>(input, weight, out, stream);
    case 8: return launch<Index, uint64_t>(input, weight, out, stream);
    default: return cgins_fail("a table of %s is not supported", cgins::name_of(cgins::dtype_of(weight)));
  }
}

// padding_idx matters to the gradient alone.
extern "C" int embedding(const DLTensor* input, const DLTensor* weight, const int64_t*, DLTensor* out,
                         cgins_stream stream) {
  CGINS_CHECK(weight->ndim == 2, "the table has %d dimensions, not 2", weight->ndim);
  if (check_rows(out)) return 1;
  switch (cgins::dtype_of(input)) {
    case cgins::Dtype::int64: return launch_words<int64_t>(input, weight, out, stream);
    case cgins::Dtype::int32: return launch_words<int32_t>(input, weight, out, stream);
    default: return cgins_fail("indices of type %s are not supported", cgins::name_of(cgins::dtype_of(input)));
  }
}
