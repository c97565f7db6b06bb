// Arguments for both dimensions of an image, such as stride=2 or stride=(2, 1).
#pragma once
#include <cgins.h>

// A single number stands for both.
inline void spread(const int64_t* given, int64_t length, int64_t (&both)[2]) {
  both[0] = given[0];
  both[1] = given[length > 1];
}
