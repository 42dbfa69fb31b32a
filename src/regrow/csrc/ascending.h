// Ascending lists of positions: where some are among others, two as one, and the gaps between them as bytes.
#pragma once
#include <cstdint>

namespace regrow {

// place[i] <- the index of wanted[i] in `listed`, or -1. Quick where `wanted` ascends too, as it need not.
void find_places(const int64_t* listed, int64_t count, const int64_t* wanted, int64_t wanted_count, int64_t* place);

// Those of both lists, each once; returns how many.
int64_t unite(const int64_t* a, int64_t a_count, const int64_t* b, int64_t b_count, int64_t* both);

// Gaps (position - previous - 1) in groups of seven bits, lowest first, the eighth bit set where a gap goes on; returns the bytes written.
// A null `code` only counts.
int64_t encode_gaps(const int64_t* position, int64_t count, uint8_t* code);
// The inverse, one position per byte without the eighth bit; false where bytes are no ascending positions below `limit`.
bool decode_gaps(const uint8_t* code, int64_t bytes, int64_t limit, int64_t* position);

}  // namespace regrow
