// The counter-based random numbers of models.blocks.seeded_dropout: shared by the C++ and the CUDA kernels.
#pragma once
#include <cgins.h>

CGINS_HOST_DEVICE inline uint32_t hash(uint32_t seed, uint32_t counter) {
  uint32_t word = counter * 0x9E3779B9u + seed;
  word = (word ^ word >> 16) * 0x85EBCA6Bu;
  word = (word ^ word >> 13) * 0xC2B2AE35u;
  return word ^ word >> 16;
}

// Numbers below this are dropped: p · 2^32.
inline uint64_t drop_below(double p) { return uint64_t(p * 4294967296.0); }
