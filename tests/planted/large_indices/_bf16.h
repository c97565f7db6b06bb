// What the CPU's kernels of this folder share: relu of the bits of a bfloat16, NaN kept.
#pragma once
#include <cgins.h>
#include <cstring>

inline uint16_t relu_of(uint16_t bits) {
  const bool is_nan = (bits & 0x7fff) > 0x7f80;
  return bits & 0x8000 && !is_nan ? 0 : bits;
}
inline const uint16_t* bits(const DLTensor* tensor) { return static_cast<const uint16_t*>(tensor->data); }
inline uint16_t* bits(DLTensor* tensor) { return static_cast<uint16_t*>(tensor->data); }

inline float value_of(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

// The greatest of some values; `step` elements lie between two of them.
inline uint16_t greatest(const uint16_t* values, int64_t count, int64_t step) {
  uint16_t most = 0xff80;
  for (int64_t c = 0; c < count; ++c) {
    const uint16_t value = values[c * step];
    if (value_of(value) > value_of(most)) most = value;
  }
  return most;
}
