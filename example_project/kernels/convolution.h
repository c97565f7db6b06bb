// A 2-D convolution as a matrix product: filters (filters × taps) times patches (taps × pixels). The patches are
// read from the images when they are needed ("implicit GEMM"). Shared by the C++ and the CUDA kernels.
#pragma once
#include "checks.h"
#include "pair.h"

// One weight of a filter: offsets from the filter's first, and from the group's first channel; place in the window.
struct Tap {
  int64_t weight, channel, down, right;
};

// One output of a convolution: offset of its image's group of channels, and where its window begins.
struct Pixel {
  int64_t image, top, left;
};

struct Convolution {
  int64_t images, height, width;        // of the input
  int64_t groups, channels, filters;    // channels and filters of one group
  int64_t kernel_height, kernel_width;
  int64_t out_height, out_width;        // of the convolution: a pool behind it makes less of them
  int64_t stride[2], padding[2], dilation[2];
  int64_t x[4], w[4], y[4];             // strides of input, weight and output

  CGINS_HOST_DEVICE int64_t taps() const { return channels * kernel_height * kernel_width; }

  CGINS_HOST_DEVICE Tap tap(int64_t number) const {
    const int64_t column = number % kernel_width, row = number / kernel_width % kernel_height;
    const int64_t channel = number / kernel_width / kernel_height;
    return {channel * w[1] + row * w[2] + column * w[3], channel * x[1], row * dilation[0], column * dilation[1]};
  }

  // Windows of pool × pool pixels over all images; pixels that fill no window are left out, as max_pool2d does.
  CGINS_HOST_DEVICE int64_t windows(int pool) const { return images * (out_height / pool) * (out_width / pool); }

  // Pixels are numbered so that those of a window are neighbours; with pool 1 in row-major order.
  CGINS_HOST_DEVICE Pixel pixel(int64_t number, int pool, int64_t group) const {
    const int64_t window = number / (pool * pool), within = number % (pool * pool);
    const int64_t columns = out_width / pool, rows = out_height / pool;
    const int64_t row = window / columns % rows * pool + within / pool;
    const int64_t column = window % columns * pool + within % pool;
    return {window / columns / rows * x[0] + group * channels * x[1], row * stride[0] - padding[0],
            column * stride[1] - padding[1]};
  }

  // Where a window's result goes, for the first filter.
  CGINS_HOST_DEVICE int64_t out_offset(int64_t window, int pool) const {
    const int64_t columns = out_width / pool, rows = out_height / pool;
    return window / columns / rows * y[0] + window / columns % rows * y[2] + window % columns * y[3];
  }

  // 0 in the padding.
  template <typename T>
  CGINS_HOST_DEVICE cgins::accumulator<T> read(const T* input, Pixel pixel, Tap tap) const {
    const int64_t row = pixel.top + tap.down, column = pixel.left + tap.right;
    const bool inside = row >= 0 && row < height && column >= 0 && column < width;
    return inside ? cgins::accumulator<T>(input[pixel.image + tap.channel + row * x[2] + column * x[3]]) : 0;
  }
};

inline int describe(const DLTensor* input, const DLTensor* weight, const DLTensor* bias, const DLTensor* out,
                    int64_t groups, Convolution* made) {
  CGINS_CHECK(input->ndim == 4, "input has %d dimensions, not 4", input->ndim);
  if (check_types(input, {weight, out}) || check_parameters(input, weight->shape[0], {bias})) return 1;
  made->images = input->shape[0], made->height = input->shape[2], made->width = input->shape[3];
  made->groups = groups, made->channels = weight->shape[1], made->filters = weight->shape[0] / groups;
  made->kernel_height = weight->shape[2], made->kernel_width = weight->shape[3];
  const int64_t inside[] = {made->height, made->width}, kernel[] = {made->kernel_height, made->kernel_width};
  int64_t size[2];
  for (int d = 0; d < 2; ++d)
    size[d] = (inside[d] + 2 * made->padding[d] - made->dilation[d] * (kernel[d] - 1) - 1) / made->stride[d] + 1;
  made->out_height = size[0], made->out_width = size[1];
  for (int d = 0; d < 4; ++d)
    made->x[d] = input->strides[d], made->w[d] = weight->strides[d], made->y[d] = out->strides[d];
  return 0;
}
