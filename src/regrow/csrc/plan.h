// What a sparse layer computes, as lists: the one data structure all kernels share.
//
// Every pass of a sparse Linear/Conv layer is a *sparse stencil*:
//
//   out[o, row0 + row_step*i, col0 + col_step*j] = bias[o] + sum_e value_e * in[c_e, i*row_stride + dy_e, j*col_stride + dx_e]
//
// forward          one stencil with dy = ky*dilation - padding, row_step = 1
// input gradient   one stencil per residue of the stride, in and out swapped, row_stride = 1; without stride one per band of rows and
//                  columns that the same taps reach
// weight gradient  the forward stencil's lists, with the sum over pixels and samples instead of over entries;
//                  or, where the input gradient is wanted too, its lists and both gradients in one walk (both.inl)
//
// Tensors are [channels][rows][cols][lanes], lanes = samples, fastest. Lists are built for one table of kernels (traits.h). Maps of up to `kUnrolledPixels` output pixels (Linear among
// them) become a *matrix*: each output pixel is a row of its own, so that taps that only meet padding cost nothing.
//
// Few samples would leave lanes idle. Then lanes run *across* columns: a row of a map is cols * samples numbers, and a tap k columns to the right
// reads them k * samples further on. A tile is some vectors of a row by some rows, and its input is packed once per shift, so that the inner
// loops see what they always see: vectors at units. The stencil's own "rows" are then vectors of a row, its "columns" rows of the map.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "records.h"
#include "scratch.h"
#include "traits.h"

namespace regrow {

constexpr int kUnrolledPixels = 4;  // largest output map computed as a matrix
constexpr int kVisitPadding = 2;    // readable visits behind the last block
constexpr int kEntryPadding = 8;    // readable units and values behind the last entry
constexpr int kMostUnits = 1 << 16;  // pixels of a packed input block

enum class Pass { forward, input_gradient };

// How the features of a linear layer lie in memory: [features][samples], as everything else does, or as torch has them.
enum class Order { chwn, rows };

// One output channel meets one block of input channels. Its entries end where those of the next visit begin.
struct Visit {
  uint32_t slot : 31;  // output channel inside its block
  uint32_t first : 1;  // start from the bias
  uint32_t begin;
  REGROW_INLINE uint32_t end() const { return this[1].begin; }
};

struct Stencil {
  int in_channels, in_rows, in_cols;
  int out_channels, out_rows, out_cols;
  int rows, cols;  // output pixels computed
  int row0, col0, row_step, col_step;
  int row_stride, col_stride;
  int dy0, dx0;              // smallest tap offsets
  int halo_rows, halo_cols;  // input pixels under one tile
  Tile tile;
  bool matrix;           // 1x1 maps: tiles are vectors of lanes, as many as suit the batch
  int lanes_per_sample;  // matrix over whole maps (1x1 convolution): pixels count as samples
  int pixels_per_bias;   // unrolled maps: rows that share a bias
  int across;            // samples whose columns are the lanes; 0: lanes are samples
  int in_block, out_block;
  const uint32_t* block_begin;  // [out blocks x in blocks + 1] -> visits
  const Visit* visits;          // inside a block by length where sources are listed (the inner loop's exit becomes predictable), else by slot; padded
  const uint16_t* unit;         // entry -> pixel of the packed input block (of a matrix: channel), and some more that may be read
  const uint32_t* source;       // entry -> which present weight (in row-major order of the mask); or, of matrices that are not unrolled (see source.h):
  const uint32_t* row_begin;    // the first present weight of each row of the mask; null where sources are listed
  bool transposed;              // rows of the mask are input channels, not output channels
  size_t entries;

  REGROW_INLINE int in_blocks() const { return (in_channels + in_block - 1) / in_block; }
  REGROW_INLINE int out_blocks() const { return (out_channels + out_block - 1) / out_block; }
};

// A stencil with its lists.
struct OwnedStencil : Stencil {
  std::vector<uint32_t> block_begins, sources, row_begins;
  std::vector<uint16_t> units;
  std::vector<Visit> visit_list;
  explicit OwnedStencil(const Stencil& empty) : Stencil(empty) {}
  OwnedStencil(OwnedStencil&&) = default;  // lists stay where they are
  OwnedStencil(const OwnedStencil&) = delete;
};

// Entries that share a weight (unrolled maps): weight `target[z]` owns entries entry[begin[z] .. begin[z+1]).
struct Fold {
  std::vector<uint32_t> target, begin, entry;
};

struct Plan {
  std::vector<OwnedStencil> stencils;
  Fold fold;  // empty where every entry has its own weight
  size_t entries() const;
  size_t bytes() const;  // of memory, itself included
};

// Which weights exist, row by row: those of output channel o are column[row_begin[o]] ..., ascending; columns count over input channels of
// a group, then kernel rows, then kernel columns.
struct Support {
  const int64_t* row_begin;
  const int32_t* column;
};

// How many samples a plan is for where they may be too few for the lanes of a vector; 0: it serves any number.
struct Few {
  int samples = 0, lanes = 0;
};

// Whether lists for them differ from those for any number.
bool runs_across(const Traits& traits, const Geometry& geometry, Few few);

Plan build_plan(const Traits& traits, const Geometry& geometry, const Support& support, Pass pass, Few few = {});
Plan build_plan(const Traits& traits, const Geometry& geometry, const uint8_t* mask, Pass pass, Few few = {});

}  // namespace regrow
