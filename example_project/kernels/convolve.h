// Convolution, activation and max pool in one pass on the CPU; pool 1 is no pool.
#pragma once
#include <algorithm>

#include "convolution.h"
#include "elementwise.h"
#include "gemm.h"
#include "operations.h"

// One panel of pixels at a time: its patches are packed once, and used for all filters.
template <int kPool, typename T, typename Activation>
void convolve_panels(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, T* out, Convolution conv,
                     Activation activate) {
  using Wide = cgins::accumulator<T>;
  constexpr int kWindow = kPool * kPool;
  static_assert(kColumns % kWindow == 0, "a panel holds whole windows");
  const int64_t depth = conv.taps(), pixels = conv.windows(kPool) * kWindow, filters = conv.groups * conv.filters;
  const int64_t panels = (pixels + kColumns - 1) / kColumns;

  const std::vector<Wide> images = widened<T>(input);
  std::vector<Wide> rows = widened<T>(weight), shifts(filters);
  rows.resize((filters + kRows) * depth);  // the last product reads kRows rows, too
  if (bias) shifts = widened<T>(bias);
  std::copy_n(row_major(input).stride, 4, conv.x);
  std::vector<Tap> taps(depth);
  for (int64_t k = 0; k < depth; ++k) taps[k] = conv.tap(k);

#pragma omp parallel if (filters * depth * pixels > 32768)
  {
    std::vector<Wide> patches(depth * kColumns);
    Wide sum[kRows][kColumns];
#pragma omp for
    for (int64_t task = 0; task < conv.groups * panels; ++task) {
      const int64_t group = task / panels, first = task % panels * kColumns;
      const int64_t width = std::min<int64_t>(kColumns, pixels - first);
      Pixel pixel[kColumns];
      for (int64_t c = 0; c < width; ++c) pixel[c] = conv.pixel(first + c, kPool, group);
      for (int64_t k = 0; k < depth; ++k)
        for (int64_t c = 0; c < width; ++c) patches[k * kColumns + c] = conv.read(images.data(), pixel[c], taps[k]);
      for (int64_t f = group * conv.filters; f < (group + 1) * conv.filters; f += kRows) {
        multiply_panel(rows.data() + f * depth, patches.data(), depth, sum);
        for (int64_t r = 0; r < std::min<int64_t>(kRows, (group + 1) * conv.filters - f); ++r)
          for (int64_t c = 0; c < width; c += kWindow) {
            Wide result = activate(sum[r][c] + shifts[f + r]);
            for (int i = 1; i < kWindow; ++i) result = larger(result, activate(sum[r][c + i] + shifts[f + r]));
            out[conv.out_offset((first + c) / kWindow, kPool) + (f + r) * conv.y[1]] = T(result);
          }
      }
    }
  }
}

template <int kPool, typename Activation>
int convolve(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, DLTensor* out,
             const Convolution& conv, Activation activate, cgins_stream) {
  return cgins::dispatch_floating(input, [&](auto zero) {
    convolve_panels<kPool>(input, weight, bias, cgins::data<decltype(zero)>(out), conv, activate);
    return 0;
  });
}
