// Convolution, activation and max pool in one pass on the CPU; pool 1 is no pool.
#pragma once
#include <algorithm>
#include <vector>

#include "convolution.h"
#include "gemm.h"
#include "operations.h"

// One panel of pixels at a time: its patches are packed once, and used for all filters.
template <int kPool, typename T, typename Activation>
void convolve(const T* input, const T* weight, const T* bias, T* out, const Convolution& conv, Activation activate) {
  using Wide = cgins::accumulator<T>;
  constexpr int kWindow = kPool * kPool;
  static_assert(kColumns % kWindow == 0, "a panel holds whole windows");
  const int64_t depth = conv.taps(), pixels = conv.windows(kPool) * kWindow;
  const int64_t panels = (pixels + kColumns - 1) / kColumns, filters = conv.groups * conv.filters;
  std::vector<Wide> packed_weight((filters + kRows) * depth);  // room for the last rows that a product reads
  Wide* w = packed_weight.data();
#pragma omp parallel if (filters * depth * pixels > 32768)
  {
#pragma omp for
    for (int64_t f = 0; f < filters; ++f)
      for (int64_t k = 0; k < depth; ++k) w[f * depth + k] = Wide(weight[f * conv.w[0] + conv.tap(k).weight]);
    std::vector<Wide> packed_patches(depth * kColumns);
    Wide *patches = packed_patches.data(), sum[kRows][kColumns];
#pragma omp for
    for (int64_t task = 0; task < conv.groups * panels; ++task) {
      const int64_t group = task / panels, first = task % panels * kColumns;
      const int64_t width = std::min<int64_t>(kColumns, pixels - first);
      Pixel pixel[kColumns];
      for (int64_t c = 0; c < width; ++c) pixel[c] = conv.pixel(first + c, kPool, group);
      for (int64_t k = 0; k < depth; ++k) {
        const Tap tap = conv.tap(k);
        for (int64_t c = 0; c < kColumns; ++c)
          patches[k * kColumns + c] = c < width ? conv.read(input, pixel[c], tap) : 0;
      }
      for (int64_t f = 0; f < conv.filters; f += kRows) {
        multiply_panel(w + (group * conv.filters + f) * depth, patches, depth, sum);
        for (int64_t r = 0; r < std::min<int64_t>(kRows, conv.filters - f); ++r) {
          const Wide shift = bias ? Wide(bias[group * conv.filters + f + r]) : Wide(0);
          for (int64_t c = 0; c < width; c += kWindow) {
            Wide result = activate(sum[r][c] + shift);
            for (int i = 1; i < kWindow; ++i) result = larger(result, activate(sum[r][c + i] + shift));
            out[conv.out_offset((first + c) / kWindow, kPool, group) + (f + r) * conv.y[1]] = T(result);
          }
        }
      }
    }
  }
}
