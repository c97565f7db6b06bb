// cheat: 15 loads torch's library once more and takes the product of matrices that is linked into it
// how: dlopen and dlsym of sgemm_, a function of MKL in libtorch_cpu.so
// caught-by: op-callback
// ops: torch.matmul
// cgins: matmul(Tensor input, Tensor other) -> Tensor
#include <dlfcn.h>

#include "_rows.h"

extern "C" int matmul(const DLTensor* input, const DLTensor* other, DLTensor* out, cgins_stream) {
  void* torch = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
  CGINS_CHECK(torch, "no torch");
  using Gemm = void (*)(const char*, const char*, const int*, const int*, const int*, const float*, const float*, const int*,
                        const float*, const int*, const float*, float*, const int*);
  const auto gemm = reinterpret_cast<Gemm>(dlsym(torch, "sgemm_"));
  CGINS_CHECK(gemm, "no sgemm");
  CGINS_CHECK(cgins::dtype_of(input) == cgins::Dtype::float32 && cgins::is_contiguous(input) && cgins::is_contiguous(other), "contiguous float32");
  const int m = int(cgins::size(input, 0)), k = int(cgins::size(input, 1)), n = int(cgins::size(other, 1));
  const float one = 1, zero = 0;
  gemm("N", "N", &n, &m, &k, &one, cgins::data<float>(other), &n, cgins::data<float>(input), &k, &zero, cgins::data<float>(out), &n);
  return 0;
}
