// A frozen network as a list of steps over tensors in one arena: planned once for maps of one size, run many times.
//
// Tensors lie [channel][row][column][sample], `innermost` samples of them: one (lanes are pixels) or a vector (lanes are samples). Rows and
// planes have gaps of zeros as wide as any reader pads, written once when an arena is made: a gap behind a row serves the next row's left
// border too, and one between planes both of them. So no layer packs or tests borders: a tap is a shift.
//
// One thread alone runs chains of layers strip by strip of rows where their maps would not stay in L2; threads that share a step run whole
// steps one by one.
#pragma once
#include <cstdint>

#include "records.h"

namespace regrow {

// Where a tensor lies in the arena, in numbers: pixel (c, r, q) of sample n is base + c * plane + (r * pitch + q) * innermost + n.
struct Site {
  int64_t base, plane;
  int channels, rows, cols, pitch;
};

// One present weight: what it multiplies lies so far from the output's first pixel in the input.
template <class T>
struct Tap {
  int32_t offset;
  T value;
};

enum class Kind { layer, max_pool, average_pool, channels, split };

// A step as kernels see it.
template <class T>
struct Task {
  Kind kind;
  int innermost;
  Site in, other, out;
  int rows, cols;            // of the map that it computes: that of `out`, or twice as many each where `out` has maxima of 2 x 2 pixels
  bool has_other, relu, pooled;
  int kernel_rows, kernel_cols, stride_rows, stride_cols, pad_top, pad_left, dilation_rows, dilation_cols;
  int tile_rows, tile_cols;  // of a layer whose lanes are samples
  int blocks;                // of a layer's input channels: what a tile reads of one stays in L1
  int tile_vectors;          // of a layer whose lanes are pixels
  bool dense;                // all outputs of a layer have the same taps, in one block
  bool by_place;             // parts of it are parts of the map, not of its channels
  int phase_rows, phase_cols;  // of a split
  const int64_t* begin;      // output o has the taps begin[i] ... begin[i + 1] in block b, i = b * outputs + o
  const int64_t* before;     // how many taps outputs before o have in all blocks
  const Tap<T>* taps;
  const T* keep;             // where lanes are pixels: all bits set at pixels of the map, none in gaps
  const T* scale;
  const T* bias;
};

constexpr int kMostTileRows = 4, kMostTileCols = 8, kMostTileVectors = 8;

}  // namespace regrow
