// cgins: uint4_groups(Tensor x, Tensor packed, Tensor scale, Tensor zero) -> Tensor
#include <cgins.h>
#include <algorithm>
#include <cmath>
#include <cstring>

extern "C" int uint4_groups(const DLTensor* x, const DLTensor* packed, const DLTensor* scale, const DLTensor* zero,
                            DLTensor* out, cgins_stream stream) {
  (void)stream;
  for (const DLTensor* tensor : {x, packed, scale, zero, static_cast<const DLTensor*>(out)})
    CGINS_CHECK(cgins::is_contiguous(tensor), "a tensor is not contiguous");
  const int64_t m = cgins::size(x, 0), k = cgins::size(x, 1), n = cgins::size(packed, 0), groups = cgins::size(scale, 1);
  const auto* codes = cgins::data<int8_t>(packed);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t l = 0; l < k; ++l) {
        const int8_t code = codes[j * (k / 2) + l / 2];
        const int nibble = l % 2 ? code >> 4 : code & 15;
        const int64_t group = j * groups + l / 32;
        const float weight = (nibble - cgins::data<uint8_t>(zero)[group]) * cgins::data<cgins::bfloat16>(scale)[group];
        sum += cgins::data<cgins::bfloat16>(x)[i * k + l] * weight;
      }
      cgins::data<cgins::bfloat16>(out)[i * n + j] = sum;
    }
  return 0;
}
