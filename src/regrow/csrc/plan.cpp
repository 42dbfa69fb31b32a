// Builds the lists of a plan from a mask: taps -> entries -> blocks -> visits ordered by length.
#include "plan.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "axis.h"

namespace regrow {
namespace {

// Entries of a visit that are worth a larger input block, and the largest one of a matrix (of a map: twice what L1 holds).
constexpr double kMatrixVisit = 8, kMapVisit = 14;
constexpr int kMostMatrixInputs = 192;
// A matrix that would give such a block less than one entry per visit is *thin*: its input blocks are as large as 16 bits can tell, its output
// blocks some times larger, and so inputs are packed few times. What is at work then lies in L3, one vector of lanes at a time.
constexpr int kMostThinInputs = 1 << 16, kThinOutputs = 4;
constexpr double kWorthShifting = 1.1;  // lanes are columns where that is so many times cheaper, by the model of `Cover`
constexpr int kFewTiles = 8;            // then output channels are split where there are fewer tiles: threads share them

struct Entry {
  uint32_t out, in;  // channels of the stencil
  int dy, dx;
  uint32_t source;
};

// Outputs that tiles are to cover, and what a tile reads for them. Of a row `copies` are packed, one per shift, where lanes are columns.
struct Cover {
  int rows, cols, reach_rows, reach_cols, row_stride, col_stride;
  bool copies = false;

  double pixels(Tile t) const {
    return (double(t.rows - 1) * row_stride + reach_rows + 1) * (double(t.cols - 1) * col_stride + reach_cols + 1);
  }
  bool fits(Tile t) const { return pixels(t) <= kMostUnits; }
  // A simple model: multiply-adds and a broadcast per entry, and a share of the packing of the halo.
  double work(Tile t) const {
    const double halo = copies ? pixels(t) : double(t.rows + reach_rows) * (t.cols + reach_cols);
    return double(ceil_div(rows, t.rows)) * ceil_div(cols, t.cols) * (t.rows * t.cols + 1.5 + 0.25 * halo);
  }
};

// The cheapest tile. Units count the halo in 16 bits: Python refuses kernels that reach too far for the smallest tile.
Tile choose_tile(const Traits& traits, const Cover& cover) {
  const auto cost = [&](Tile t) { return std::pair(!cover.fits(t), cover.work(t)); };
  return *std::min_element(traits.tiles, traits.tiles + traits.tile_count, [&](Tile a, Tile b) { return cost(a) < cost(b); });
}

int even_block(int total, int most) {
  most = std::max(1, std::min(most, total));
  return ceil_div(total, ceil_div(total, most));
}

// An input block holds what L1 does, or more where it would give visits too few entries: then loading and storing their partial sums costs
// more than inputs out of L2.
int input_block(int channels, int in_l1, double most, double per_channel, double per_visit) {
  return even_block(channels, int(std::clamp(per_visit / std::max(per_channel, 1e-9), double(in_l1), most * in_l1)));
}

bool is_thin(const Stencil& s, double per_channel) { return s.matrix && s.in_channels > kMostMatrixInputs && per_channel * kMostMatrixInputs < 1; }

// `per_channel`: entries of an output channel per input channel, on average.
void choose_blocks(const Traits& t, Stencil& s, double per_channel) {
  const int pixel = t.vector_bytes * s.halo_rows * s.halo_cols, tile = t.vector_bytes * s.tile.rows * s.tile.cols;
  if (s.matrix && is_thin(s, per_channel)) {
    s.in_block = even_block(s.in_channels, int(std::min(kMatrixVisit / std::max(per_channel, 1e-9), double(kMostThinInputs))));
    s.out_block = even_block(s.out_channels, std::max(t.matrix_outputs, kThinOutputs * s.in_block));
  } else if (s.matrix) {
    s.in_block = input_block(s.in_channels, t.matrix_inputs, kMostMatrixInputs / double(t.matrix_inputs), per_channel, kMatrixVisit);
    s.out_block = even_block(s.out_channels, t.matrix_outputs);
  } else {
    s.in_block = input_block(s.in_channels, t.input_bytes / pixel, 2, per_channel, kMapVisit);
    s.out_block = even_block(s.out_channels, t.sum_bytes / tile);
  }
}

double mean_entries(size_t entries, const Stencil& s, int groups) {
  return double(entries) * groups / (double(s.in_channels) * s.out_channels);
}

// Sorts entries into blocks and writes visits and where inputs lie. `each(f)` calls f(entry) for all, those of an output channel by input
// channel, then tap; twice, so that no list of them is needed. Sources are written where `s.sources` has been given their number.
template <class Each>
void write_lists(OwnedStencil& s, size_t count, const Each& each) {
  const size_t blocks = size_t(s.out_blocks()) * s.in_blocks(), cells = size_t(s.in_blocks()) * s.out_channels;
  std::vector<uint32_t> length(cells, 0);
  each([&](const Entry& e) { length[size_t(e.in / s.in_block) * s.out_channels + e.out]++; });
  std::vector<int32_t> first(s.out_channels, -1);  // block of the first entry
  for (int b = 0; b < s.in_blocks(); b++)
    for (int o = 0; o < s.out_channels; o++)
      if (length[size_t(b) * s.out_channels + o] && first[o] < 0) first[o] = b;
  s.visit_list.reserve(size_t(std::count_if(length.begin(), length.end(), [](uint32_t n) { return n > 0; })) +
                       size_t(std::count(first.begin(), first.end(), -1)) + kVisitPadding);
  s.block_begins.reserve(blocks + 1);
  s.block_begins.assign(1, 0);
  uint32_t at = 0;
  std::vector<uint32_t> slots;
  for (size_t i = 0; i < blocks; i++) {
    const int b = int(i % s.in_blocks()), o0 = int(i / s.in_blocks()) * s.out_block;
    uint32_t* const mine = length.data() + size_t(b) * s.out_channels + o0;
    slots.clear();
    for (int o = o0; o < std::min(o0 + s.out_block, s.out_channels); o++)
      if (mine[o - o0] || (first[o] < 0 && b == 0)) slots.push_back(uint32_t(o - o0));  // one without any entry still writes its bias
    if (s.row_begins.empty()) std::stable_sort(slots.begin(), slots.end(), [&](uint32_t a, uint32_t b) { return mine[a] < mine[b]; });
    for (const uint32_t slot : slots) {
      s.visit_list.push_back({slot, first[o0 + slot] < 0 || first[o0 + slot] == b, at});
      at += std::exchange(mine[slot], at);  // from now on: where its next entry goes
    }
    s.block_begins.push_back(uint32_t(s.visit_list.size()));
  }
  s.visit_list.resize(s.visit_list.size() + kVisitPadding, Visit{0, 0, at});
  s.units.resize(count + kEntryPadding);
  each([&](const Entry& e) {
    const int b = e.in / s.in_block, channel = int(e.in) - b * s.in_block;
    const uint32_t k = length[size_t(b) * s.out_channels + e.out]++;
    s.units[k] = uint16_t((channel * s.halo_rows + (e.dy - s.dy0)) * s.halo_cols + (e.dx - s.dx0));
    if (s.row_begins.empty()) s.sources[k] = e.source;
  });
  s.block_begin = s.block_begins.data(), s.visits = s.visit_list.data(), s.unit = s.units.data();
  s.source = s.sources.data(), s.row_begin = s.row_begins.empty() ? nullptr : s.row_begins.data();
  s.entries = count;
}

// The same with a source for each of these entries.
void write_lists(OwnedStencil& s, const std::vector<Entry>& entries) {
  s.sources.resize(entries.size());
  write_lists(s, entries.size(), [&](auto write) {
    for (const Entry& e : entries) write(e);
  });
}

void by_input(std::vector<Entry>& entries) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return std::tie(a.in, a.dy, a.dx) < std::tie(b.in, b.dy, b.dx); });
}

// Calls visit(out channel, in channel, ky, kx, rank) for every weight present, in row-major order.
template <class F>
void for_each_weight(const Geometry& g, const Support& support, F visit) {
  const int per_group_in = g.in_channels / g.groups, per_group_out = g.out_channels / g.groups, taps = g.kernel_rows * g.kernel_cols;
  uint32_t rank = 0;
  for (int o = 0; o < g.out_channels; o++)
    for (int64_t k = support.row_begin[o]; k < support.row_begin[o + 1]; k++) {
      const int channel = support.column[k] / taps, tap = support.column[k] % taps;
      visit(o, o / per_group_out * per_group_in + channel, tap / g.kernel_cols, tap % g.kernel_cols, rank++);
    }
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
OwnedStencil pointwise(const Traits& traits, const Geometry& g, const Support& support, Pass pass) {
  const bool forward = pass == Pass::forward;
  OwnedStencil s(empty_matrix(forward ? g.in_channels : g.out_channels, forward ? g.out_channels : g.in_channels));
  s.lanes_per_sample = g.out_rows * g.out_cols;
  s.transposed = !forward;
  const size_t entries = size_t(support.row_begin[g.out_channels]);
  choose_blocks(traits, s, mean_entries(entries, s, g.groups));
  s.row_begins.assign(support.row_begin, support.row_begin + g.out_channels + 1);
  write_lists(s, entries, [&](auto write) {
    for_each_weight(g, support, [&](uint32_t o, uint32_t i, int, int, uint32_t rank) {
      write(forward ? Entry{o, i, 0, 0, rank} : Entry{i, o, 0, 0, rank});
    });
  });
  return s;
}

// Small maps: one matrix row per output pixel, one column per input pixel.
OwnedStencil unrolled(const Traits& traits, const Geometry& g, const Support& support, Pass pass) {
  const bool forward = pass == Pass::forward;
  const int in = g.in_channels * g.in_rows * g.in_cols, out = g.out_channels * g.out_rows * g.out_cols;
  OwnedStencil s(empty_matrix(forward ? in : out, forward ? out : in));
  if (forward) s.pixels_per_bias = g.out_rows * g.out_cols;
  std::vector<Entry> entries;
  for_each_weight(g, support, [&](int o, int i, int ky, int kx, uint32_t rank) {
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
  choose_blocks(traits, s, mean_entries(entries.size(), s, g.groups));
  write_lists(s, entries);
  return s;
}

Stencil empty_map(const Geometry& g, Pass pass, const Band& row, const Band& col, Tile tile) {
  const bool forward = pass == Pass::forward;
  Stencil s{};
  s.in_channels = forward ? g.in_channels : g.out_channels, s.out_channels = forward ? g.out_channels : g.in_channels;
  s.in_rows = forward ? g.in_rows : g.out_rows, s.in_cols = forward ? g.in_cols : g.out_cols;
  s.out_rows = forward ? g.out_rows : g.in_rows, s.out_cols = forward ? g.out_cols : g.in_cols;
  s.rows = row.count, s.cols = col.count;
  s.row_step = forward ? 1 : g.stride_rows, s.col_step = forward ? 1 : g.stride_cols;
  s.row0 = row.residue + row.start * s.row_step, s.col0 = col.residue + col.start * s.col_step;
  s.row_stride = forward ? g.stride_rows : 1, s.col_stride = forward ? g.stride_cols : 1;
  s.dy0 = row.low + row.start * s.row_stride, s.dx0 = col.low + col.start * s.col_stride;
  s.tile = tile;
  s.halo_rows = (tile.rows - 1) * s.row_stride + row.high - row.low + 1;
  s.halo_cols = (tile.cols - 1) * s.col_stride + col.high - col.low + 1;
  s.lanes_per_sample = s.pixels_per_bias = 1;
  return s;
}

Tile tile_of(const Traits& traits, const AxisPlan& rows, const AxisPlan& cols, const Band& row, const Band& col) {
  return choose_tile(traits, {row.count, col.count, row.high - row.low, col.high - col.low, rows.step, cols.step});
}

std::vector<OwnedStencil> maps(const Traits& traits, const Geometry& g, const Support& support, Pass pass) {
  AxisPlan rows = plan_axis({g.kernel_rows, g.stride_rows, g.pad_top, g.dilation_rows, g.in_rows, g.out_rows}, pass);
  AxisPlan cols = plan_axis({g.kernel_cols, g.stride_cols, g.pad_left, g.dilation_cols, g.in_cols, g.out_cols}, pass);
  const bool single = pass == Pass::input_gradient && rows.bands.size() == 1 && cols.bands.size() == 1;
  const Tile common = tile_of(traits, rows, cols, rows.bands[0], cols.bands[0]);
  if (single) cut(rows, common.rows), cut(cols, common.cols);
  const auto by_row = rows.reached(), by_col = cols.reached();
  const size_t across = cols.bands.size();
  std::vector<std::vector<Entry>> entries(rows.bands.size() * across);
  for_each_weight(g, support, [&](uint32_t o, uint32_t i, int ky, int kx, uint32_t rank) {
    const bool forward = pass == Pass::forward;
    for (const size_t r : by_row[ky])
      for (const size_t c : by_col[kx]) {
        const int dy = rows.taps[ky].offset + rows.bands[r].start * rows.step, dx = cols.taps[kx].offset + cols.bands[c].start * cols.step;
        entries[r * across + c].push_back({forward ? o : i, forward ? i : o, dy, dx, rank});
      }
  });
  std::vector<OwnedStencil> stencils;
  for (size_t r = 0; r < entries.size(); r++) {
    const Band &row = rows.bands[r / across], &col = cols.bands[r % across];
    if (row.count == 0 || col.count == 0) continue;
    OwnedStencil s(empty_map(g, pass, row, col, single ? common : tile_of(traits, rows, cols, row, col)));
    by_input(entries[r]);
    choose_blocks(traits, s, mean_entries(entries[r].size(), s, g.groups));
    write_lists(s, entries[r]);
    stencils.push_back(std::move(s));
  }
  return stencils;
}

bool one_tap(const Geometry& g) { return g.kernel_rows == 1 && g.kernel_cols == 1 && g.stride_rows == 1 && g.stride_cols == 1; }

// Vectors of a row where lanes are the columns of few samples: they take the place of rows, rows of the map that of columns.
Cover cover_across(int64_t cols, int rows, int shifts, int reach, Few few) {
  return {int((cols * few.samples + few.lanes - 1) / few.lanes), rows, shifts - 1, reach, shifts, 1, true};
}

OwnedStencil across(const Traits& traits, const Geometry& g, const Support& support, Pass pass, Few few) {
  const AxisPlan rows = plan_axis({g.kernel_rows, 1, g.pad_top, g.dilation_rows, g.in_rows, g.out_rows}, pass);
  const AxisPlan cols = plan_axis({g.kernel_cols, 1, g.pad_left, g.dilation_cols, g.in_cols, g.out_cols}, pass);
  const Band &row = rows.bands[0], &col = cols.bands[0];
  const int reach = row.high - row.low, shifts = col.high - col.low + 1;
  const Cover cover = cover_across(col.count, row.count, shifts, reach, few);
  const Tile tile = choose_tile(traits, cover);
  OwnedStencil s(empty_map(g, pass, row, col, tile));
  s.across = few.samples;
  s.rows = cover.rows, s.cols = cover.cols;
  s.row_stride = shifts, s.dy0 = col.low, s.dx0 = row.low;
  s.halo_rows = tile.rows * shifts, s.halo_cols = tile.cols + reach;
  std::vector<Entry> entries;
  for_each_weight(g, support, [&](uint32_t o, uint32_t i, int ky, int kx, uint32_t rank) {
    if (!rows.reaches(rows.taps[ky], row) || !cols.reaches(cols.taps[kx], col)) return;
    const bool forward = pass == Pass::forward;
    entries.push_back({forward ? o : i, forward ? i : o, cols.taps[kx].offset, rows.taps[ky].offset, rank});
  });
  // By input, row and column, as of other maps: so sums have the same bits.
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return std::tie(a.in, a.dx, a.dy) < std::tie(b.in, b.dx, b.dy); });
  choose_blocks(traits, s, mean_entries(entries.size(), s, g.groups));
  const int tiles = ceil_div(s.rows, tile.rows) * ceil_div(s.cols, tile.cols);
  if (tiles < kFewTiles) s.out_block = std::min(s.out_block, even_block(s.out_channels, ceil_div(s.out_channels * tiles, kFewTiles)));
  write_lists(s, entries);
  return s;
}

}  // namespace

bool runs_across(const Traits& traits, const Geometry& g, Few few) {
  const bool pointwise = one_tap(g) && g.pad_top == 0 && g.pad_left == 0, small = g.out_rows * g.out_cols <= kUnrolledPixels;
  if (few.samples == 0 || pointwise || small || g.stride_rows != 1 || g.stride_cols != 1) return false;
  const int reach_rows = g.dilation_rows * (g.kernel_rows - 1), reach_cols = g.dilation_cols * (g.kernel_cols - 1);
  const Cover maps{g.out_rows, g.out_cols, reach_rows, reach_cols, 1, 1}, columns = cover_across(g.out_cols, g.out_rows, reach_cols + 1, reach_rows, few);
  const Tile tile = choose_tile(traits, columns);
  return columns.fits(tile) && kWorthShifting * columns.work(tile) < maps.work(choose_tile(traits, maps)) * ceil_div(few.samples, few.lanes);
}

size_t Plan::entries() const {
  size_t total = 0;
  for (const Stencil& s : stencils) total += s.entries;
  return total;
}

template <class T>
static size_t bytes_of(const std::vector<T>& list) {
  return list.capacity() * sizeof(T);
}

size_t Plan::bytes() const {
  size_t total = sizeof(Plan) + bytes_of(stencils) + bytes_of(fold.target) + bytes_of(fold.begin) + bytes_of(fold.entry);
  for (const OwnedStencil& s : stencils) total += bytes_of(s.block_begins) + bytes_of(s.units) + bytes_of(s.sources) + bytes_of(s.row_begins) + bytes_of(s.visit_list);
  return total;
}

Plan build_plan(const Traits& traits, const Geometry& g, const Support& support, Pass pass, Few few) {
  Plan plan;
  const int pixels = g.out_rows * g.out_cols;
  if (one_tap(g) && g.pad_top == 0 && g.pad_left == 0 && g.in_rows == g.out_rows && g.in_cols == g.out_cols) {
    plan.stencils.push_back(pointwise(traits, g, support, pass));
  } else if (pixels <= kUnrolledPixels) {
    plan.stencils.push_back(unrolled(traits, g, support, pass));
    if (pass == Pass::forward && pixels > 1) plan.fold = fold_of(plan.stencils[0].sources);
  } else if (runs_across(traits, g, few)) {
    plan.stencils.push_back(across(traits, g, support, pass, few));
  } else {
    plan.stencils = maps(traits, g, support, pass);
  }
  return plan;
}

Plan build_plan(const Traits& traits, const Geometry& g, const uint8_t* mask, Pass pass, Few few) {
  const int row = g.in_channels / g.groups * g.kernel_rows * g.kernel_cols;
  std::vector<int64_t> row_begin(1, 0);
  std::vector<int32_t> column;
  for (int o = 0; o < g.out_channels; o++) {
    for (int i = 0; i < row; i++)
      if (*mask++) column.push_back(i);
    row_begin.push_back(int64_t(column.size()));
  }
  return build_plan(traits, g, Support{row_begin.data(), column.data()}, pass, few);
}

}  // namespace regrow
