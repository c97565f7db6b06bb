// The heart of a matrix product on the CPU: a few rows of a times a panel of b.
#pragma once
#include <cgins.h>

constexpr int kRows = 4;      // of a at once: each number of b that is loaded is used this often
constexpr int kColumns = 32;  // of a panel of b

// sum[r][c] = Σ a[r·depth + k] · b[k·kColumns + c] over k < depth. Both are dense, in the accumulator's type.
// Apart from the loops around it, which keep compilers from holding the sums in registers when inlined.
template <typename Wide>
__attribute__((noinline)) static void multiply_panel(const Wide* a, const Wide* b, int64_t depth,
                                                     Wide (&sum)[kRows][kColumns]) {
  Wide total[kRows][kColumns] = {};
  for (int64_t k = 0; k < depth; ++k)
    for (int r = 0; r < kRows; ++r)
#pragma omp simd
      for (int c = 0; c < kColumns; ++c) total[r][c] += a[r * depth + k] * b[k * kColumns + c];
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < kColumns; ++c) sum[r][c] = total[r][c];
}
