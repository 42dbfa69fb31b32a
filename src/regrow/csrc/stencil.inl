// Forward and weight-gradient kernels of a sparse stencil (see plan.h). Included once per instruction set.
//
// A tile is R x C output pixels x V vectors of lanes of one output channel: R*C*V accumulators in registers. For each block of input
// channels the tile's input with its halo is packed into an L1-resident scratch (which also removes all border tests); every entry is
// then one broadcast and R*C*V multiply-adds out of L1. Partial sums wait in `sums` (L2) for the next block.
// A tile's lanes are taken in *octets* of V vectors, one after the other, but packed and unpacked together: memory is read and written
// in long runs of the batch, L2 holds all octets, L1 the one at work. What comes next is prefetched: the next block's input into L2,
// the next visits' sums into L1.

constexpr int64_t kL2Bytes = 1000 * 1024;
constexpr int64_t kStreamBytes = 16 * 1024 * 1024;  // outputs that no cache would hold until they are read
constexpr int kLine = 64;                           // bytes

template <class T>
using Vec = typename Simd<T>::Vec;
template <class T>
using Loose = typename Simd<T>::Loose;

template <class T>
REGROW_INLINE const Vec<T>& at(const T* p) { return *reinterpret_cast<const Vec<T>*>(p); }
template <class T>
REGROW_INLINE Vec<T>& at(T* p) { return *reinterpret_cast<Vec<T>*>(p); }
template <class T>
REGROW_INLINE const Loose<T>& loose(const T* p) { return *reinterpret_cast<const Loose<T>*>(p); }
template <class T>
REGROW_INLINE Loose<T>& loose(T* p) { return *reinterpret_cast<Loose<T>*>(p); }

// The first `count` of eight lanes, zeros behind; reads nothing behind the last.
template <class T>
REGROW_INLINE Vec<T> first_lanes(const T* from, int count) {
  if (count >= kLanes) return loose(from);
#ifdef REGROW_AVX2
  if constexpr (sizeof(T) == 4) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return (Vec<T>)_mm256_maskload_ps((const float*)from, _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane));
  }
#endif
  Vec<T> v{};
  for (int n = 0; n < count; n++) v[n] = from[n];
  return v;
}

// Writes past the caches where the instruction set can; `to` is aligned.
template <class T>
REGROW_INLINE void stream(T* to, const Vec<T>& v) {
#ifdef REGROW_AVX2
  if constexpr (sizeof(T) == 4) return _mm256_stream_ps((float*)to, (__m256)v);
#endif
  at(to) = v;
}

REGROW_INLINE void finish_streams() {
#ifdef REGROW_AVX2
  _mm_sfence();
#endif
}

// Where one tile lies.
struct Place {
  int row, col;  // first output pixel, in the stencil's own grid
  int64_t lane;  // first lane
  int lanes;     // lanes in use
  int octets;    // ceil(lanes / (V * 8))
};

// One pixel's lanes, split over octets: to[octet][V*8] <- from[lanes], zeros behind the last lane.
template <class T, int V>
REGROW_INLINE void split(T* to, size_t octet_size, const T* from, const Place& p) {
  constexpr int width = V * kLanes;
  const int whole = p.lanes / width, rest = p.lanes % width;
  for (int o = 0; o < whole; o++, to += octet_size, from += width)
    REGROW_UNROLL for (int v = 0; v < width; v += kLanes) at(to + v) = loose(from + v);
  if (rest)
    REGROW_UNROLL for (int v = 0; v < width; v += kLanes) at(to + v) = v < rest ? first_lanes(from + v, rest - v) : Vec<T>{};
}

template <class T, int V>
REGROW_INLINE void clear(T* to, size_t octet_size, int pixels, const Place& p) {
  for (int o = 0; o < p.octets; o++, to += octet_size)
    for (int i = 0; i < pixels * V; i++) at(to + i * kLanes) = Vec<T>{};
}

// packed[octet][channel][halo row][halo col][V*8 lanes] <- x, zero outside the map.
template <class T, int V>
void pack(T* packed, size_t octet_size, const Stencil& s, const T* x, int64_t lanes, int channel, int channels, const Place& p) {
  constexpr int width = V * kLanes;
  const int top = p.row * s.row_stride + s.dy0, left = p.col * s.col_stride + s.dx0;
  int from = left < 0 ? -left : 0, to = s.in_cols - left < s.halo_cols ? s.in_cols - left : s.halo_cols;
  if (from >= to) from = to = s.halo_cols;
  for (int c = 0; c < channels; c++)
    for (int r = 0; r < s.halo_rows; r++) {
      T* out = packed + (size_t)(c * s.halo_rows + r) * s.halo_cols * width;
      const int row = top + r;
      if (row < 0 || row >= s.in_rows) {
        clear<T, V>(out, octet_size, s.halo_cols, p);
        continue;
      }
      const int64_t pixel = ((int64_t)(channel + c) * s.in_rows + row) * s.in_cols + left;
      if (from > 0) clear<T, V>(out, octet_size, from, p);
      for (int q = from; q < to; q++) split<T, V>(out + q * width, octet_size, x + (pixel + q) * lanes + p.lane, p);
      if (to < s.halo_cols) clear<T, V>(out + to * width, octet_size, s.halo_cols - to, p);
    }
}

// Fetches into L2 what the next pack will read, a few cache lines per visit of the present block.
struct Ahead {
  const char *line = nullptr, *end = nullptr;  // of the present run
  const char* channel = nullptr;               // first run of the present channel
  int64_t run_bytes = 0, col_pitch = 0, row_pitch = 0, channel_pitch = 0;
  int cols = 0, rows = 0, col = 0, row = 0;
  int channels = 0;   // left
  int per_visit = 0;  // lines

  REGROW_INLINE void fetch() {
    for (int i = 0; i < per_visit; i++, line += kLine) {
      if (line >= end && !next_run()) return;
      __builtin_prefetch(line, 0, 2);
    }
  }

  bool next_run() {
    if (channels == 0) {
      per_visit = 0;
      return false;
    }
    line = channel + row * row_pitch + col * col_pitch, end = line + run_bytes;
    if (++col == cols) col = 0, row++;
    if (row == rows) row = 0, channel += channel_pitch, channels--;
    return true;
  }
};

// What pack(channel, channels, p) will read, spread over `visits`.
template <class T>
Ahead look_ahead(const Stencil& s, const T* x, int64_t lanes, int channel, int channels, const Place& p, int64_t visits) {
  int top = p.row * s.row_stride + s.dy0, left = p.col * s.col_stride + s.dx0;
  const int bottom = top + s.halo_rows < s.in_rows ? top + s.halo_rows : s.in_rows;
  const int right = left + s.halo_cols < s.in_cols ? left + s.halo_cols : s.in_cols;
  top = top < 0 ? 0 : top, left = left < 0 ? 0 : left;
  Ahead a;
  if (bottom <= top || right <= left || visits == 0) return a;
  const bool whole = p.lanes == lanes;  // pixels of a row are one run
  a.channel = reinterpret_cast<const char*>(x + (((int64_t)channel * s.in_rows + top) * s.in_cols + left) * lanes + p.lane);
  a.channels = channels, a.rows = bottom - top, a.cols = whole ? 1 : right - left;
  a.col_pitch = lanes * (int64_t)sizeof(T), a.row_pitch = s.in_cols * a.col_pitch, a.channel_pitch = s.in_rows * a.row_pitch;
  a.run_bytes = (whole ? right - left : 1) * (int64_t)sizeof(T) * p.lanes;
  const int64_t lines = (a.run_bytes + kLine - 1) / kLine * a.cols * a.rows * channels;
  a.per_visit = int((lines + visits - 1) / visits);
  return a;
}

// First lane of output pixel (i, j) of the tile.
REGROW_INLINE int64_t output_at(const Stencil& s, int64_t lanes, int out, const Place& p, int i, int j) {
  const int64_t row = s.row0 + (int64_t)s.row_step * (p.row + i), col = s.col0 + (int64_t)s.col_step * (p.col + j);
  return ((out * (int64_t)s.out_rows + row) * s.out_cols + col) * lanes + p.lane;
}

// Large outputs of whole cache lines need not be read before they are written.
template <class T>
bool streamed(const Stencil& s, const T* y, int64_t lanes) {
  const int64_t pixel = lanes * (int64_t)sizeof(T);
  return pixel % kLine == 0 && reinterpret_cast<uintptr_t>(y) % kLine == 0 && pixel * s.out_channels * s.out_rows * s.out_cols >= kStreamBytes;
}

// y <- sums[octet][out of block][R*C pixels][V*8 lanes], where pixels and lanes exist.
template <class T, int R, int C, int V>
void unpack(const T* sums, size_t octet_size, const Stencil& s, T* y, int64_t lanes, int out, int outs, const Place& p) {
  constexpr int width = V * kLanes;
  const int rows = s.rows - p.row < R ? s.rows - p.row : R, cols = s.cols - p.col < C ? s.cols - p.col : C;
  const int whole = p.lanes / width, rest = p.lanes % width;
  const bool streams = streamed(s, y, lanes);
  for (int c = 0; c < outs; c++)
    for (int i = 0; i < rows; i++)
      for (int j = 0; j < cols; j++) {
        T* to = y + output_at(s, lanes, out + c, p, i, j);
        const T* from = sums + ((size_t)c * R * C + i * C + j) * width;
        for (int o = 0; o < whole; o++, to += width, from += octet_size)
          REGROW_UNROLL for (int v = 0; v < width; v += kLanes) {
            if (streams)
              stream<T>(to + v, at(from + v));
            else
              loose(to + v) = at(from + v);
          }
        int n = 0;
        for (; n + kLanes <= rest; n += kLanes) loose(to + n) = at(from + n);
        for (; n < rest; n++) to[n] = from[n];
      }
}

// How a stencil's work divides into items: (output block, pixel tile, group of octets), the last fastest.
struct Grid {
  int64_t lane_groups, col_tiles, pixel_tiles, items;
  int octets;
};

// As many octets as L2 holds and as leave every thread a few items.
template <int R, int C, int V>
Grid make_grid(const Stencil& s, int64_t lanes, size_t octet_bytes, int parts) {
  Grid g;
  g.col_tiles = (s.cols + C - 1) / C;
  g.pixel_tiles = (s.rows + R - 1) / R * g.col_tiles;
  const int64_t vectors = (lanes + V * kLanes - 1) / (V * kLanes), tiles = g.pixel_tiles * s.out_blocks();
  int64_t octets = kL2Bytes / (int64_t)octet_bytes;
  if (octets > vectors) octets = vectors;
  while (octets > 1 && tiles * ((vectors + octets - 1) / octets) < 4 * parts) octets /= 2;
  g.lane_groups = octets < 1 ? vectors : (vectors + octets - 1) / octets;
  g.octets = int((vectors + g.lane_groups - 1) / g.lane_groups);  // groups of even size
  g.items = tiles * g.lane_groups;
  return g;
}

template <int R, int C, int V>
Place place_of(const Grid& g, int64_t item, int64_t lanes) {
  const int width = g.octets * V * kLanes;
  const int64_t pixel = item / g.lane_groups % g.pixel_tiles;
  Place p;
  p.lane = item % g.lane_groups * width;
  p.row = int(pixel / g.col_tiles) * R, p.col = int(pixel % g.col_tiles) * C;
  p.lanes = int(lanes - p.lane < width ? lanes - p.lane : width);
  p.octets = (p.lanes + V * kLanes - 1) / (V * kLanes);
  return p;
}

REGROW_INLINE int channels_of(const Stencil& s, int block) {
  const int left = s.in_channels - block * s.in_block;
  return left < s.in_block ? left : s.in_block;
}

// Starts to fetch what follows block b of this item: the next block that has entries, or the next item's first.
template <class T, int R, int C, int V>
Ahead after_block(const Stencil& s, const Grid& g, const T* x, int64_t lanes, int64_t item, int64_t items, int b, const uint32_t* begin) {
  if (s.matrix) return {};  // its pack reads long runs, which the hardware foresees
  Place p = place_of<R, C, V>(g, item, lanes);
  const int64_t visits = int64_t(begin[b + 1] - begin[b]) * p.octets;
  if (++b == s.in_blocks()) {
    if (item + 1 == items) return {};
    p = place_of<R, C, V>(g, item + 1, lanes), b = 0;
  }
  return look_ahead(s, x, lanes, b * s.in_block, channels_of(s, b), p, visits);
}

// Walks a thread's items: begin(out, outs, place), then block(visits, octet's packed input, octet) for every block and octet, then end.
template <class T, int R, int C, int V, class Body>
void walk(const Stencil& s, const T* x, int64_t lanes, int part, int parts, Body& body) {
  constexpr int P = R * C * V;
  // One extra cache line per octet: without it, octets a multiple of 4 KiB apart would compete for the same cache sets.
  const size_t line = kLine / sizeof(T), packed_octet = (size_t)s.in_block * s.halo_rows * s.halo_cols * V * kLanes + line,
               outs_octet = (size_t)s.out_block * P * kLanes + line;
  const Grid g = make_grid<R, C, V>(s, lanes, (packed_octet + outs_octet) * sizeof(T), parts);
  static thread_local Scratch scratch;
  T* packed = scratch.get<T>((packed_octet + outs_octet) * g.octets);
  T* tile = packed + packed_octet * g.octets;  // [octet][out of block][P vectors]: sums or gradients
  const Range mine = share(g.items, part, parts);
  for (int64_t item = mine.begin; item < mine.end; item++) {
    const Place p = place_of<R, C, V>(g, item, lanes);
    const int64_t out_block = item / (g.lane_groups * g.pixel_tiles);
    const int out = int(out_block) * s.out_block, outs = s.out_channels - out < s.out_block ? s.out_channels - out : s.out_block;
    const uint32_t* begin = s.block_begin.data() + out_block * s.in_blocks();
    body.begin(tile, outs_octet, out, outs, p);
    for (int b = 0; b < s.in_blocks(); b++) {
      if (begin[b] == begin[b + 1]) continue;
      pack<T, V>(packed, packed_octet, s, x, lanes, b * s.in_block, channels_of(s, b), p);
      Ahead ahead = after_block<T, R, C, V>(s, g, x, lanes, item, mine.end, b, begin);
      for (int o = 0; o < p.octets; o++)
        body.block(s.visits.data() + begin[b], s.visits.data() + begin[b + 1], packed + o * packed_octet, tile + o * outs_octet, out, ahead);
    }
    body.end(tile, outs_octet, out, outs, p);
  }
}

// The part of an octet's tile that a visit two further on will use.
template <class T, int P>
REGROW_INLINE void fetch_tile(const T* tile, const Visit* visit) {
  const T* next = tile + (size_t)visit[kVisitPadding].slot * P * kLanes;
  REGROW_UNROLL for (int t = 0; t < P; t += kLine / int(kLanes * sizeof(T))) __builtin_prefetch(next + t * kLanes);
}

// ---- forward ----

template <class T, int R, int C, int V, int S>
struct ForwardTiles {
  static constexpr int P = R * C * V;
  const Stencil& s;
  const T *values, *bias;
  T* y;
  int64_t lanes;

  void begin(T*, size_t, int, int, const Place&) const {}

  void block(const Visit* visit, const Visit* last, const T* packed, T* sums, int out, Ahead& ahead) const {
    for (; visit < last; visit++) {
      ahead.fetch();
      fetch_tile<T, P>(sums, visit);
      T* mine = sums + (size_t)visit->slot * P * kLanes;
      Vec<T> sum[P];
      if (visit->first) {
        const Vec<T> start = (bias ? bias[(out + visit->slot) / s.pixels_per_bias] : T(0)) - Vec<T>{};
        REGROW_UNROLL for (int t = 0; t < P; t++) sum[t] = start;
      } else {
        REGROW_UNROLL for (int t = 0; t < P; t++) sum[t] = at(mine + t * kLanes);
      }
      accumulate(sum, packed, s.unit.data() + visit->begin, values + visit->begin, values + visit->end);
      REGROW_UNROLL for (int t = 0; t < P; t++) at(mine + t * kLanes) = sum[t];
    }
  }

  // The inner loop: sum[pixel] += value_k * packed[unit_k + pixel].
  REGROW_INLINE void accumulate(Vec<T> (&sum)[P], const T* packed, const uint32_t* unit, const T* value, const T* end) const {
    const int row_pitch = s.row_stride * s.halo_cols * V * kLanes, step = (S ? S : s.col_stride) * V * kLanes;
    for (; value < end; value++, unit++) {
      const Vec<T> w = *value - Vec<T>{};
      const T* x = packed + (size_t)*unit * (V * kLanes);
      REGROW_UNROLL for (int i = 0; i < R; i++) {
        REGROW_UNROLL for (int j = 0; j < C; j++) {
          REGROW_UNROLL for (int v = 0; v < V; v++) sum[(i * C + j) * V + v] += w * at(x + i * row_pitch + j * step + v * kLanes);
        }
      }
    }
  }

  void end(const T* sums, size_t octet_size, int out, int outs, const Place& p) const {
    unpack<T, R, C, V>(sums, octet_size, s, y, lanes, out, outs, p);
  }
};

// ---- weight gradient: d value_k = sum over pixels and lanes of grad_out[pixel] * packed[unit_k + pixel] ----

// sums[0..3] += the lane sums of four vectors; only the first `valid` are real.
template <class T>
REGROW_INLINE void add_lane_sums(T* sums, const Vec<T> (&v)[4], int valid) {
#ifdef REGROW_AVX2
  if constexpr (sizeof(T) == 4) {
    const __m256 h = _mm256_hadd_ps(_mm256_hadd_ps((__m256)v[0], (__m256)v[1]), _mm256_hadd_ps((__m256)v[2], (__m256)v[3]));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    const __m128i real = _mm_cmpgt_epi32(_mm_set1_epi32(valid), _mm_setr_epi32(0, 1, 2, 3));
    _mm_storeu_ps((float*)sums, _mm_add_ps(_mm_loadu_ps((float*)sums), _mm_and_ps(_mm_castsi128_ps(real), four)));
    return;
  }
#endif
  for (int i = 0; i < 4 && i < valid; i++) {
    T total = 0;
    for (int n = 0; n < kLanes; n++) total += v[i][n];
    sums[i] += total;
  }
}

template <class T, int R, int C, int V, int S>
struct GradientTiles {
  static constexpr int P = R * C * V;
  const Stencil& s;
  const T* grad_out;
  T* sums;
  int64_t lanes;

  // grads[octet][out of block][R*C pixels][V*8 lanes] <- grad_out, zero where no pixel or lane exists.
  void begin(T* grads, size_t octet_size, int out, int outs, const Place& p) const {
    for (int c = 0; c < outs; c++)
      for (int i = 0; i < R; i++)
        for (int j = 0; j < C; j++) {
          T* to = grads + ((size_t)c * R * C + i * C + j) * V * kLanes;
          if (p.row + i < s.rows && p.col + j < s.cols)
            split<T, V>(to, octet_size, grad_out + output_at(s, lanes, out + c, p, i, j), p);
          else
            clear<T, V>(to, octet_size, 1, p);
        }
  }

  void block(const Visit* visit, const Visit* last, const T* packed, const T* grads, int, Ahead& ahead) const {
    const int row_pitch = s.row_stride * s.halo_cols * V * kLanes, step = (S ? S : s.col_stride) * V * kLanes;
    const uint32_t* unit = s.unit.data();
    for (; visit < last; visit++) {
      ahead.fetch();
      fetch_tile<T, P>(grads, visit);
      const T* mine = grads + (size_t)visit->slot * P * kLanes;
      Vec<T> g[P];
      REGROW_UNROLL for (int t = 0; t < P; t++) g[t] = at(mine + t * kLanes);
      for (uint32_t k = visit->begin; k < visit->end; k += 4) {  // reads up to three entries of the next list: their sums are dropped
        Vec<T> sum[4] = {};
        const T *x0 = packed + (size_t)unit[k] * (V * kLanes), *x1 = packed + (size_t)unit[k + 1] * (V * kLanes),
                *x2 = packed + (size_t)unit[k + 2] * (V * kLanes), *x3 = packed + (size_t)unit[k + 3] * (V * kLanes);
        REGROW_UNROLL for (int i = 0; i < R; i++) {
          REGROW_UNROLL for (int j = 0; j < C; j++) {
            REGROW_UNROLL for (int v = 0; v < V; v++) {
              const int t = (i * C + j) * V + v, shift = i * row_pitch + j * step + v * kLanes;
              sum[0] += g[t] * at(x0 + shift);
              sum[1] += g[t] * at(x1 + shift);
              sum[2] += g[t] * at(x2 + shift);
              sum[3] += g[t] * at(x3 + shift);
            }
          }
        }
        add_lane_sums<T>(sums + k, sum, int(visit->end - k));
      }
    }
  }

  void end(const T*, size_t, int, int, const Place&) const {}
};

// ---- choice of the compiled tile ----

// Vectors of lanes per tile of a matrix: few idle lanes, work for every thread, and not many passes over the lists.
inline int vectors_for(const Stencil& s, int64_t lanes, int parts) {
  const int64_t vectors = (lanes + kLanes - 1) / kLanes;
  int best = 0;
  int64_t least = 0;
  for (const int v : {8, 7, 4, 2, 1, 13}) {
    if (v > 8 && v < vectors) continue;  // so many registers pay only where they hold the whole batch
    const int64_t items = (vectors + v - 1) / v * s.out_blocks(), cost = (items + parts - 1) / parts * (v + 2);
    if (!best || cost < least) best = v, least = cost;
  }
  return best;
}

// Calls body.run<R, C, V, S>() for the stencil's tile.
template <class Body>
void with_tile(const Stencil& s, const Body& body) {
  if (s.matrix) switch (vectors_for(s, body.lanes, body.parts)) {
      case 1: return body.template run<1, 1, 1, 1>();
      case 2: return body.template run<1, 1, 2, 1>();
      case 4: return body.template run<1, 1, 4, 1>();
      case 7: return body.template run<1, 1, 7, 1>();
      case 8: return body.template run<1, 1, 8, 1>();
      default: return body.template run<1, 1, 13, 1>();
    }
#define TILE(R, C)                                                 \
  if (s.tile.rows == R && s.tile.cols == C) {                      \
    if (s.col_stride == 1) return body.template run<R, C, 1, 1>(); \
    if (s.col_stride == 2) return body.template run<R, C, 1, 2>(); \
    return body.template run<R, C, 1, 0>();                        \
  }
#include "tiles.inc"
#undef TILE
}

template <class T>
struct Forward {
  const Stencil& s;
  const T *x, *values, *bias;
  T* y;
  int64_t lanes;
  int part, parts;
  template <int R, int C, int V, int S>
  void run() const {
    ForwardTiles<T, R, C, V, S> body{s, values, bias, y, lanes};
    walk<T, R, C, V>(s, x, lanes, part, parts, body);
    finish_streams();
  }
};

template <class T>
struct Gradient {
  const Stencil& s;
  const T *x, *grad_out;
  T* sums;
  int64_t lanes;
  int part, parts;
  template <int R, int C, int V, int S>
  void run() const {
    GradientTiles<T, R, C, V, S> body{s, grad_out, sums, lanes};
    walk<T, R, C, V>(s, x, lanes, part, parts, body);
  }
};

template <class T>
void forward(const Stencil& s, const T* x, const T* values, const T* bias, T* y, int64_t lanes, int part, int parts) {
  with_tile(s, Forward<T>{s, x, values, bias, y, lanes, part, parts});
}

template <class T>
void weight_gradient(const Stencil& s, const T* x, const T* grad_out, T* sums, int64_t lanes, int part, int parts) {
  with_tile(s, Gradient<T>{s, x, grad_out, sums, lanes, part, parts});
}
