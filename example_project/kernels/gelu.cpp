// cgins: gelu(Tensor input, str approximate='none') -> Tensor
#include <cmath>
#include <cstring>

#include <cgins.h>

template <typename T>
static void gelu_elements(const DLTensor* input, bool tanh_form, DLTensor* out) {
  using Wide = cgins::accumulator<T>;
  const T* x = cgins::data<T>(input);
  T* y = cgins::data<T>(out);
  const int64_t count = cgins::numel(input);
  const bool dense = cgins::is_contiguous(input) && cgins::is_contiguous(out);
#pragma omp parallel for if (count > 32768)
  for (int64_t i = 0; i < count; ++i) {
    const Wide value = Wide(x[dense ? i : cgins::offset_of(input, i)]);
    const Wide inner = tanh_form ? std::tanh(Wide(M_2_SQRTPI * M_SQRT1_2) * (value + Wide(0.044715) * value * value * value))
                                 : std::erf(value * Wide(M_SQRT1_2));
    y[dense ? i : cgins::offset_of(out, i)] = T(Wide(0.5) * value * (1 + inner));
  }
}

extern "C" int gelu(const DLTensor* input, const char* approximate, int64_t approximate_len, DLTensor* out,
                    cgins_stream) {
  const bool tanh_form = approximate_len == 4 && std::memcmp(approximate, "tanh", 4) == 0;
  return cgins::dispatch_floating(input, [&](auto zero) {
    gelu_elements<decltype(zero)>(input, tanh_form, out);
    return 0;
  });
}
