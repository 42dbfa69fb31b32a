// Builds the lists of a plan from a mask: taps -> entries -> blocks -> visits ordered by length.
#include "plan.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>

namespace regrow {
namespace {

constexpr int kScratchBytes = 24 * 1024;  // packed input block of a map: most of a 32 KiB L1
constexpr int kSumBytes = 128 * 1024;     // partial sums of an output block of a map: a few of them stay in L2
// Matrices have no halo: few entries per feature, so that visits (partial sums out of L2 and back) cost more than inputs out of L2.
constexpr int kMatrixInBlock = 192, kMatrixOutBlock = 1024;

constexpr std::array kTiles = {
#define TILE(R, C) Tile{R, C},
#include "tiles.inc"
#undef TILE
};

int ceil_div(int a, int b) { return (a + b - 1) / b; }
int floor_mod(int a, int b) { return ((a % b) + b) % b; }

struct Entry {
  uint32_t out, in;  // channels of the stencil
  int dy, dx;
  uint32_t source;
};

// One kernel position along one axis: which residue of the output it serves, and which input it reads.
struct Tap {
  int residue, offset;
};

// Rows (or columns) a stencil sees along one axis.
struct Axis {
  int kernel, stride, pad, dilation, in, out;
};

Tap tap_of(const Axis& axis, int k, Pass pass) {
  const int shift = k * axis.dilation - axis.pad;
  if (pass == Pass::forward) return {0, shift};
  const int residue = floor_mod(shift, axis.stride);
  return {residue, (residue - shift) / axis.stride};
}

struct Extent {
  int count, low, high;  // output positions of this residue; reach of its taps
};

// Does position `i * stride + offset` fall inside [0, in) for any i < count?
bool meets(int offset, int stride, int count, int in) {
  for (int i = 0; i < count; i++)
    if (const int at = i * stride + offset; at >= 0 && at < in) return true;
  return false;
}

// Cheapest tile by a simple model: multiply-adds and a broadcast per entry, and a share of the packing of the halo.
Tile choose_tile(int rows, int cols, int reach_rows, int reach_cols) {
  auto cost = [&](Tile t) {
    const double halo = double(t.rows + reach_rows) * (t.cols + reach_cols);
    return ceil_div(rows, t.rows) * ceil_div(cols, t.cols) * (t.rows * t.cols + 1.5 + 0.25 * halo);
  };
  return *std::min_element(kTiles.begin(), kTiles.end(), [&](Tile a, Tile b) { return cost(a) < cost(b); });
}

int even_block(int total, int most) {
  most = std::max(1, std::min(most, total));
  return ceil_div(total, ceil_div(total, most));
}

void choose_blocks(Stencil& s) {
  const int vector_bytes = kLanes * 4;
  s.in_block = even_block(s.in_channels, s.matrix ? kMatrixInBlock : kScratchBytes / (vector_bytes * s.halo_rows * s.halo_cols));
  s.out_block = even_block(s.out_channels, s.matrix ? kMatrixOutBlock : kSumBytes / (vector_bytes * s.tile.rows * s.tile.cols));
}

// Sorts the entries into blocks and writes visits, units and sources.
void write_lists(Stencil& s, std::vector<Entry>& entries) {
  const size_t blocks = size_t(s.out_blocks()) * s.in_blocks(), cells = size_t(s.in_blocks()) * s.out_channels;
  std::vector<uint32_t> length(cells, 0);
  std::vector<int32_t> first(s.out_channels, -1);  // block of the first entry
  for (const Entry& e : entries) length[size_t(e.in / s.in_block) * s.out_channels + e.out]++;
  for (int b = 0; b < s.in_blocks(); b++)
    for (int o = 0; o < s.out_channels; o++)
      if (length[size_t(b) * s.out_channels + o] && first[o] < 0) first[o] = b;
  s.block_begin.assign(1, 0);
  uint32_t at = 0;
  std::vector<uint32_t> begin(cells, 0);
  for (size_t i = 0; i < blocks; i++) {
    const int b = int(i % s.in_blocks()), o0 = int(i / s.in_blocks()) * s.out_block;
    const size_t from = s.visits.size();
    for (int o = o0; o < std::min(o0 + s.out_block, s.out_channels); o++) {
      const uint32_t n = length[size_t(b) * s.out_channels + o];
      const bool empty = first[o] < 0 && b == 0;  // no entry anywhere: still writes its bias
      if (n || empty) s.visits.push_back({o - o0, empty || first[o] == b, 0, n});
    }
    std::stable_sort(s.visits.begin() + from, s.visits.end(), [](const Visit& a, const Visit& b) { return a.end < b.end; });
    for (size_t v = from; v < s.visits.size(); v++) {
      Visit& visit = s.visits[v];
      begin[size_t(b) * s.out_channels + o0 + visit.slot] = visit.begin = at;
      visit.end = at += visit.end;
    }
    s.block_begin.push_back(uint32_t(s.visits.size()));
  }
  s.visits.resize(s.visits.size() + kVisitPadding);
  s.unit.resize(entries.size());
  s.source.resize(entries.size());
  for (const Entry& e : entries) {  // entries arrive ordered by input channel, then tap
    const int b = e.in / s.in_block;
    const uint32_t k = begin[size_t(b) * s.out_channels + e.out]++;
    s.unit[k] = ((e.in - b * s.in_block) * s.halo_rows + (e.dy - s.dy0)) * s.halo_cols + (e.dx - s.dx0);
    s.source[k] = e.source;
  }
}

void by_input(std::vector<Entry>& entries) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return std::tie(a.in, a.dy, a.dx) < std::tie(b.in, b.dy, b.dx); });
}

// Calls visit(out channel, in channel, ky, kx, rank) for every weight present, in row-major order.
template <class F>
void for_each_weight(const Geometry& g, const uint8_t* mask, F visit) {
  const int per_group_in = g.in_channels / g.groups, per_group_out = g.out_channels / g.groups;
  uint32_t rank = 0;
  for (int o = 0; o < g.out_channels; o++)
    for (int i = 0; i < per_group_in; i++)
      for (int ky = 0; ky < g.kernel_rows; ky++)
        for (int kx = 0; kx < g.kernel_cols; kx++)
          if (*mask++) visit(o, o / per_group_out * per_group_in + i, ky, kx, rank++);
}

Fold fold_of(const std::vector<uint32_t>& source) {
  std::vector<uint32_t> order(source.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return source[a] < source[b]; });
  Fold fold;
  for (size_t i = 0; i < order.size(); i++) {
    if (i == 0 || source[order[i]] != source[order[i - 1]]) {
      fold.target.push_back(source[order[i]]);
      fold.begin.push_back(uint32_t(i));
    }
  }
  fold.begin.push_back(uint32_t(order.size()));
  fold.entry = std::move(order);
  return fold;
}

Stencil empty_matrix(int in, int out) {
  Stencil s{};
  s.in_channels = in, s.out_channels = out;
  s.in_rows = s.in_cols = s.out_rows = s.out_cols = s.rows = s.cols = 1;
  s.row_step = s.col_step = s.row_stride = s.col_stride = s.halo_rows = s.halo_cols = 1;
  s.tile = {1, 1};
  s.matrix = true;
  s.lanes_per_sample = s.pixels_per_bias = 1;
  return s;
}

// 1x1 kernels without stride or padding: pixels are samples.
Stencil pointwise(const Geometry& g, const uint8_t* mask, Pass pass) {
  const bool forward = pass == Pass::forward;
  Stencil s = empty_matrix(forward ? g.in_channels : g.out_channels, forward ? g.out_channels : g.in_channels);
  s.lanes_per_sample = g.out_rows * g.out_cols;
  std::vector<Entry> entries;
  for_each_weight(g, mask, [&](uint32_t o, uint32_t i, int, int, uint32_t rank) {
    entries.push_back(forward ? Entry{o, i, 0, 0, rank} : Entry{i, o, 0, 0, rank});
  });
  by_input(entries);
  choose_blocks(s);
  write_lists(s, entries);
  return s;
}

// Small maps: one matrix row per output pixel, one column per input pixel.
Stencil unrolled(const Geometry& g, const uint8_t* mask, Pass pass) {
  const bool forward = pass == Pass::forward;
  const int in = g.in_channels * g.in_rows * g.in_cols, out = g.out_channels * g.out_rows * g.out_cols;
  Stencil s = empty_matrix(forward ? in : out, forward ? out : in);
  if (forward) s.pixels_per_bias = g.out_rows * g.out_cols;
  std::vector<Entry> entries;
  for_each_weight(g, mask, [&](int o, int i, int ky, int kx, uint32_t rank) {
    for (int y = 0; y < g.out_rows; y++)
      for (int x = 0; x < g.out_cols; x++) {
        const int row = y * g.stride_rows + ky * g.dilation_rows - g.pad_top;
        const int col = x * g.stride_cols + kx * g.dilation_cols - g.pad_left;
        if (row < 0 || row >= g.in_rows || col < 0 || col >= g.in_cols) continue;
        const uint32_t from = (i * g.in_rows + row) * g.in_cols + col, to = (o * g.out_rows + y) * g.out_cols + x;
        entries.push_back(forward ? Entry{to, from, 0, 0, rank} : Entry{from, to, 0, 0, rank});
      }
  });
  by_input(entries);
  choose_blocks(s);
  write_lists(s, entries);
  return s;
}

struct AxisPlan {
  std::vector<Tap> taps;  // per kernel position
  std::vector<Extent> residues;
};

AxisPlan plan_axis(const Axis& axis, Pass pass) {
  const bool forward = pass == Pass::forward;
  AxisPlan plan;
  for (int r = 0; r < (forward ? 1 : axis.stride); r++)
    plan.residues.push_back({forward ? axis.out : ceil_div(std::max(0, axis.in - r), axis.stride), 1, 0});
  for (int k = 0; k < axis.kernel; k++) {
    Tap tap = tap_of(axis, k, pass);
    Extent& extent = plan.residues[tap.residue];
    if (!meets(tap.offset, forward ? axis.stride : 1, extent.count, forward ? axis.in : axis.out)) {
      tap.residue = -1;  // meets padding only
    } else if (extent.low > extent.high) {
      extent.low = extent.high = tap.offset;
    } else {
      extent.low = std::min(extent.low, tap.offset), extent.high = std::max(extent.high, tap.offset);
    }
    plan.taps.push_back(tap);
  }
  for (Extent& extent : plan.residues)
    if (extent.low > extent.high) extent.low = extent.high = 0;
  return plan;
}

Stencil empty_map(const Geometry& g, Pass pass, const AxisPlan& rows, const AxisPlan& cols, int ry, int rx) {
  const bool forward = pass == Pass::forward;
  Stencil s{};
  s.in_channels = forward ? g.in_channels : g.out_channels, s.out_channels = forward ? g.out_channels : g.in_channels;
  s.in_rows = forward ? g.in_rows : g.out_rows, s.in_cols = forward ? g.in_cols : g.out_cols;
  s.out_rows = forward ? g.out_rows : g.in_rows, s.out_cols = forward ? g.out_cols : g.in_cols;
  s.rows = rows.residues[ry].count, s.cols = cols.residues[rx].count;
  s.row0 = ry, s.col0 = rx;
  s.row_step = forward ? 1 : g.stride_rows, s.col_step = forward ? 1 : g.stride_cols;
  s.row_stride = forward ? g.stride_rows : 1, s.col_stride = forward ? g.stride_cols : 1;
  s.dy0 = rows.residues[ry].low, s.dx0 = cols.residues[rx].low;
  const int reach_rows = rows.residues[ry].high - s.dy0, reach_cols = cols.residues[rx].high - s.dx0;
  s.tile = choose_tile(s.rows, s.cols, reach_rows, reach_cols);
  s.halo_rows = (s.tile.rows - 1) * s.row_stride + reach_rows + 1;
  s.halo_cols = (s.tile.cols - 1) * s.col_stride + reach_cols + 1;
  s.lanes_per_sample = s.pixels_per_bias = 1;
  return s;
}

std::vector<Stencil> maps(const Geometry& g, const uint8_t* mask, Pass pass) {
  const AxisPlan rows = plan_axis({g.kernel_rows, g.stride_rows, g.pad_top, g.dilation_rows, g.in_rows, g.out_rows}, pass);
  const AxisPlan cols = plan_axis({g.kernel_cols, g.stride_cols, g.pad_left, g.dilation_cols, g.in_cols, g.out_cols}, pass);
  const int across = int(cols.residues.size());
  std::vector<std::vector<Entry>> entries(rows.residues.size() * across);
  for_each_weight(g, mask, [&](uint32_t o, uint32_t i, int ky, int kx, uint32_t rank) {
    const Tap y = rows.taps[ky], x = cols.taps[kx];
    if (y.residue < 0 || x.residue < 0) return;
    const bool forward = pass == Pass::forward;
    entries[y.residue * across + x.residue].push_back({forward ? o : i, forward ? i : o, y.offset, x.offset, rank});
  });
  std::vector<Stencil> stencils;
  for (size_t r = 0; r < entries.size(); r++) {
    Stencil s = empty_map(g, pass, rows, cols, int(r) / across, int(r) % across);
    if (s.rows == 0 || s.cols == 0) continue;
    by_input(entries[r]);
    choose_blocks(s);
    write_lists(s, entries[r]);
    stencils.push_back(std::move(s));
  }
  return stencils;
}

}  // namespace

size_t Plan::entries() const {
  size_t total = 0;
  for (const Stencil& s : stencils) total += s.entries();
  return total;
}

Plan build_plan(const Geometry& g, const uint8_t* mask, Pass pass) {
  Plan plan;
  const bool one_tap = g.kernel_rows == 1 && g.kernel_cols == 1 && g.stride_rows == 1 && g.stride_cols == 1;
  const int pixels = g.out_rows * g.out_cols;
  if (one_tap && g.pad_top == 0 && g.pad_left == 0 && g.in_rows == g.out_rows && g.in_cols == g.out_cols) {
    plan.stencils.push_back(pointwise(g, mask, pass));
  } else if (pixels <= kUnrolledPixels) {
    plan.stencils.push_back(unrolled(g, mask, pass));
    if (pass == Pass::forward && pixels > 1) plan.fold = fold_of(plan.stencils[0].source);
  } else {
    plan.stencils = maps(g, mask, pass);
  }
  return plan;
}

}  // namespace regrow
