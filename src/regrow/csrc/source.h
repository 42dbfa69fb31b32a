// Which present weight each entry of a stencil is of: a list, or (matrices) found by walking visits and the mask's rows together.
#pragma once
#include <algorithm>
#include <vector>

#include "plan.h"

namespace regrow {

// move(entry, weight) for this part of the entries of a matrix whose output channels are the rows of the mask: a visit is a run of weights.
template <class Move>
void runs_of_rows(const Stencil& s, Range rows, Move move) {
  std::vector<uint32_t> next(s.row_begin + rows.begin, s.row_begin + rows.end);
  for (int block = int(rows.begin / s.out_block); block < s.out_blocks() && int64_t(block) * s.out_block < rows.end; block++) {
    const int64_t shift = int64_t(block) * s.out_block - rows.begin;
    const uint32_t* begin = s.block_begin + size_t(block) * s.in_blocks();
    for (const Visit* visit = s.visits + begin[0]; visit < s.visits + begin[s.in_blocks()]; visit++) {
      const int64_t row = visit->slot + shift;
      if (row < 0 || row >= rows.end - rows.begin) continue;
      uint32_t weight = next[row];
      for (uint32_t k = visit->begin; k < visit->end(); k++) move(int64_t(k), weight++);
      next[row] = weight;
    }
  }
}

// The same where input channels are the rows of the mask: weights of a row follow one another as output channels do.
template <class Move>
void runs_of_columns(const Stencil& s, Range blocks, Move move) {
  std::vector<uint32_t> next;
  for (int64_t b = blocks.begin; b < blocks.end; b++) {
    const int64_t row = b * s.in_block, rows = std::min<int64_t>(s.in_block, s.in_channels - row);
    next.assign(s.row_begin + row, s.row_begin + row + rows);
    for (int block = 0; block < s.out_blocks(); block++) {
      const uint32_t* begin = s.block_begin + size_t(block) * s.in_blocks() + b;
      const uint32_t end = s.visits[begin[1]].begin;
      for (uint32_t k = s.visits[begin[0]].begin; k < end; k++) move(int64_t(k), next[s.unit[k]]++);
    }
  }
}

// Calls move(entry, weight) for the part-th of `parts` shares of a stencil without a list of sources.
template <class Move>
void for_each_source(const Stencil& s, int part, int parts, Move move) {
  if (s.transposed)
    runs_of_columns(s, share(s.in_blocks(), part, parts), move);
  else
    runs_of_rows(s, share(s.out_channels, part, parts), move);
}

}  // namespace regrow
