// cgins: relu(Tensor input, bool inplace=False) -> Tensor
// RIGHT unless the build defines a way to go wrong.
#include <cstdio>
#include <cstdlib>

#include <cgins.h>

#ifdef BROKEN
this is no C++
#endif

extern "C" int relu(const DLTensor* input, bool, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::is_contiguous(input), "contiguous tensors only");
  const float* x = cgins::data<float>(input);
  float* y = cgins::data<float>(out);
  const int64_t count = cgins::numel(input);
#ifdef CRASH
  std::puts("last words");
  std::fflush(stdout);
  std::abort();
#endif
#ifdef HANG
  for (volatile bool more = true; more;) {
  }
#endif
#ifdef REFUSE
  return cgins_fail("%d elements are too many", int(count));
#endif
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] < 0 ? 0 : x[i];
#ifdef WRONG
  y[count - 1] += 1;
#endif
  return 0;
}
