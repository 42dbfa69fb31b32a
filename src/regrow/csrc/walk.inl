// How a thread walks its share of a sparse stencil: items, blocks, strips. Included by stencil.inl.
//
// For each block of input channels the tile's input with its halo is packed into an L1-resident scratch (which also removes all border
// tests). A tile's lanes are taken in *strips* of V vectors, one after the other, but packed and unpacked together: memory is read and
// written in long runs of the batch, L2 holds all strips, L1 the one at work. What comes next is prefetched: the next block's input into
// L2, the next visits' sums into L1.

#include "pack.inl"

// How a stencil's work divides into items: (output block, pixel tile, group of strips), the last fastest.
struct Grid {
  int64_t lane_groups, col_tiles, pixel_tiles, items;
  int strips;
};

// As many strips as L2 holds and as leave every thread a few items.
template <class T, int R, int C, int V>
Grid make_grid(const Stencil& s, int64_t lanes, size_t strip_bytes, int parts) {
  Grid g;
  g.col_tiles = (s.cols + C - 1) / C;
  g.pixel_tiles = (s.rows + R - 1) / R * g.col_tiles;
  const int64_t vectors = (lanes + V * kLanes<T> - 1) / (V * kLanes<T>), tiles = g.pixel_tiles * s.out_blocks();
  int64_t strips = REGROW_TRAITS.cache_bytes / (int64_t)strip_bytes;
  if (strips > vectors) strips = vectors;
  while (strips > 1 && tiles * ((vectors + strips - 1) / strips) < 4 * parts) strips /= 2;
  g.lane_groups = strips < 1 ? vectors : (vectors + strips - 1) / strips;
  g.strips = int((vectors + g.lane_groups - 1) / g.lane_groups);  // groups of even size
  g.items = tiles * g.lane_groups;
  return g;
}

template <class T, int R, int C, int V>
Place place_of(const Grid& g, int64_t item, int64_t lanes) {
  const int width = g.strips * V * kLanes<T>;
  const int64_t pixel = item / g.lane_groups % g.pixel_tiles;
  Place p;
  p.lane = item % g.lane_groups * width;
  p.row = int(pixel / g.col_tiles) * R, p.col = int(pixel % g.col_tiles) * C;
  p.lanes = int(lanes - p.lane < width ? lanes - p.lane : width);
  p.strips = (p.lanes + V * kLanes<T> - 1) / (V * kLanes<T>);
  return p;
}

REGROW_INLINE int channels_of(const Stencil& s, int block) {
  const int left = s.in_channels - block * s.in_block;
  return left < s.in_block ? left : s.in_block;
}

// Starts to fetch what follows block b of this item: the next block, or the next item's first.
template <class T, int R, int C, int V>
Ahead after_block(const Stencil& s, const Grid& g, const T* x, int64_t lanes, int64_t item, int64_t items, int b, const uint32_t* begin) {
  if (s.matrix || s.across) return {};  // their packs read long runs, which the hardware foresees
  Place p = place_of<T, R, C, V>(g, item, lanes);
  const int64_t visits = int64_t(begin[b + 1] - begin[b]) * p.strips;
  if (++b == s.in_blocks()) {
    if (item + 1 == items) return {};
    p = place_of<T, R, C, V>(g, item + 1, lanes), b = 0;
  }
  return look_ahead(x, s.in_rows, s.in_cols, input_box(s, p), b * s.in_block, channels_of(s, b), lanes, p, visits);
}

// Starts to fetch the output gradients (null: not read) of the next item. Weight gradients use forward stencils, whose outputs are the
// whole map.
template <class T, int R, int C, int V>
Ahead after_item(const Stencil& s, const Grid& g, const T* grad_out, int64_t lanes, int64_t next, int64_t items, int64_t visits) {
  if (!grad_out || s.matrix || s.across || next == items) return {};
  const Place p = place_of<T, R, C, V>(g, next, lanes);
  const int out = int(next / (g.lane_groups * g.pixel_tiles)) * s.out_block;
  const int outs = s.out_channels - out < s.out_block ? s.out_channels - out : s.out_block;
  return look_ahead(grad_out, s.out_rows, s.out_cols, {p.row, p.col, p.row + R, p.col + C}, out, outs, lanes, p, visits * p.strips);
}

// Walks a thread's items: begin(out, outs, place), then block(visits, strip's packed input, strip) for every block and strip, then end.
template <class T, int R, int C, int V, class Body>
void walk(const Stencil& s, Order order, const T* x, int64_t lanes, int part, int parts, Body& body) {
  constexpr int P = R * C * V;
  // One extra cache line per strip: without it, strips a multiple of 4 KiB apart would compete for the same cache sets.
  const size_t line = kLine / sizeof(T), packed_strip = (size_t)s.in_block * s.halo_rows * s.halo_cols * V * kLanes<T> + line,
               outs_strip = Body::kTiles * ((size_t)s.out_block * P * kLanes<T> + line);
  const Grid g = make_grid<T, R, C, V>(s, lanes, (packed_strip + outs_strip) * sizeof(T), parts);
  static thread_local Scratch scratch;
  T* packed = scratch.get<T>((packed_strip + outs_strip) * g.strips);
  T* tile = packed + packed_strip * g.strips;  // [strip][tile of the body][out of block][P vectors]: sums or gradients
  const Range mine = share(g.items, part, parts);
  for (int64_t item = mine.begin; item < mine.end; item++) {
    const Place p = place_of<T, R, C, V>(g, item, lanes);
    const int64_t out_block = item / (g.lane_groups * g.pixel_tiles);
    const int out = int(out_block) * s.out_block, outs = s.out_channels - out < s.out_block ? s.out_channels - out : s.out_block;
    const uint32_t* begin = s.block_begin + out_block * s.in_blocks();
    body.begin(tile, outs_strip, out, outs, p);
    for (int b = 0; b < s.in_blocks(); b++) {
      if (begin[b] == begin[b + 1]) continue;
      if (order == Order::rows)
        pack_rows<T, V>(packed, packed_strip, x, s.in_channels, b * s.in_block, channels_of(s, b), p);
      else
        pack<T, V>(packed, packed_strip, s, x, lanes, b * s.in_block, channels_of(s, b), p);
      Ahead ahead = after_block<T, R, C, V>(s, g, x, lanes, item, mine.end, b, begin);
      Ahead outputs;
      if (b + 1 == s.in_blocks()) outputs = after_item<T, R, C, V>(s, g, body.outputs_read(), lanes, item + 1, mine.end, begin[b + 1] - begin[b]);
      const int pixels = channels_of(s, b) * s.halo_rows * s.halo_cols;
      for (int o = 0; o < p.strips; o++)
        body.block(s.visits + begin[b], s.visits + begin[b + 1], packed + o * packed_strip, pixels, tile + o * outs_strip, out, ahead, outputs);
    }
    body.end(tile, outs_strip, out, outs, p);
  }
}
