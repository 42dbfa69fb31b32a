// The state of torch's CPU generator.
#pragma once
#include <cstdint>

namespace regrow {

struct Twister {
  static constexpr int kSize = 624;
  uint32_t state[kSize];
  int next;  // position of the next number in the block; kSize: a new block first
};

}  // namespace regrow
