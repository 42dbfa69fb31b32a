#include "ascending.h"

#include <algorithm>

namespace regrow {
namespace {

constexpr int kBits = 7, kGoesOn = 1 << kBits;
constexpr int kMostBits = 63;

// The first of `listed` from `at` on that is not below `value`, by steps that double: near ones are found quickly.
int64_t forward_to(const int64_t* listed, int64_t count, int64_t at, int64_t value) {
  int64_t step = 1;
  while (at + step < count && listed[at + step] < value) at += step, step *= 2;
  return std::lower_bound(listed + at, listed + std::min(at + step + 1, count), value) - listed;
}

}  // namespace

void find_places(const int64_t* listed, int64_t count, const int64_t* wanted, int64_t wanted_count, int64_t* place) {
  int64_t at = 0;
  for (int64_t i = 0; i < wanted_count; i++) {
    const int64_t value = wanted[i];
    if (at > 0 && listed[at - 1] >= value) at = 0;
    if (at < count && listed[at] < value) at = forward_to(listed, count, at, value);
    place[i] = at < count && listed[at] == value ? at : -1;
  }
}

int64_t unite(const int64_t* a, int64_t a_count, const int64_t* b, int64_t b_count, int64_t* both) {
  return std::set_union(a, a + a_count, b, b + b_count, both) - both;
}

int64_t encode_gaps(const int64_t* position, int64_t count, uint8_t* code) {
  int64_t bytes = 0, before = -1;
  for (int64_t i = 0; i < count; i++) {
    uint64_t gap = uint64_t(position[i] - before - 1);
    before = position[i];
    for (; gap >= kGoesOn; gap >>= kBits, bytes++)
      if (code) code[bytes] = uint8_t(gap | kGoesOn);
    if (code) code[bytes] = uint8_t(gap);
    bytes++;
  }
  return bytes;
}

bool decode_gaps(const uint8_t* code, int64_t bytes, int64_t limit, int64_t* position) {
  int64_t before = -1;
  uint64_t gap = 0;
  int shift = 0;
  for (int64_t i = 0; i < bytes; i++) {
    if (shift >= kMostBits) return false;
    gap |= uint64_t(code[i] & (kGoesOn - 1)) << shift;
    shift += kBits;
    if (code[i] & kGoesOn) continue;
    if (gap >= uint64_t(limit - before - 1)) return false;
    before = *position++ = before + 1 + int64_t(gap);
    gap = 0, shift = 0;
  }
  return shift == 0;
}

}  // namespace regrow
