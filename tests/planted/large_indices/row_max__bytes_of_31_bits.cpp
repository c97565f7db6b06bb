// cgins: row_max(Tensor input) -> Tensor
// Wrong: the distance of rows in bytes is an int, and where the fourth part of the rows begins is told in those.
#include "_bf16.h"

static int quarter_of(const DLTensor* input) {
  const int row_bytes = (int)(input->strides[0] * 2);
  return (int)((uint32_t)row_bytes * (uint32_t)(input->shape[0] / 4));
}

extern "C" int row_max(const DLTensor* input, DLTensor* out, cgins_stream) {
  const int64_t rows = input->shape[0], quarter = rows / 4;
  const volatile int begin = quarter_of(input);
  for (int64_t part = 0; part < 4; ++part) {
    const char* first = (const char*)input->data + part * begin;
    const int64_t last = part == 3 ? rows : (part + 1) * quarter;
    for (int64_t row = part * quarter; row < last; ++row) {
      const uint16_t* values = (const uint16_t*)first + (row - part * quarter) * input->strides[0];
      bits(out)[row] = greatest(values, input->shape[1], input->strides[1]);
    }
  }
  return 0;
}
