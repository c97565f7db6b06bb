// honest: links C++'s run time statically, so as to run on older systems, and refuses by exceptions that it catches itself
// ops: torch.nn.functional.linear
// packs: f32 bf16 plain even
// yaml: {flags: [-static-libstdc++]}
// cgins: linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor
#include <locale>
#include <sstream>
#include <stdexcept>

#include "_elements.h"

namespace {
std::string shape_of(const DLTensor* x) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  for (int d = 0; d < x->ndim; ++d) text << (d ? "x" : "") << x->shape[d];
  return text.str();
}

void require(bool holds, const DLTensor* x, const char* what) {
  if (!holds) throw std::invalid_argument(shape_of(x) + ": " + what);
}
}  // namespace

extern "C" int linear(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, DLTensor* out, cgins_stream) {
  try {
    require(input->ndim == 2, input, "an input of rows only");
    require(weight->ndim == 2, weight, "a weight of rows only");
    require(!bias || bias->dtype.bits == input->dtype.bits, input, "bias of another type");
    const int64_t rows = input->shape[0], depth = input->shape[1], columns = weight->shape[0];
    return cgins::dispatch_floating(input, [&](auto zero) {
      using T = decltype(zero);
      const T *x = cgins::data<T>(input), *w = cgins::data<T>(weight);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c) {
          double sum = bias ? elements::wide(elements::at<T>(bias, c)) : 0;
          for (int64_t k = 0; k < depth; ++k)
            sum += elements::wide(x[r * input->strides[0] + k * input->strides[1]]) *
                   elements::wide(w[c * weight->strides[0] + k * weight->strides[1]]);
          elements::at<T>(out, r * columns + c) = elements::rounded<T>(sum);
        }
      return 0;
    });
  } catch (const std::exception& error) {
    return cgins_fail("%s", error.what());
  }
}
