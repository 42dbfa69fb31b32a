// Steps of a program (program.h): what both kinds of lanes share, and the way from a step to its kernel. Layers keep output pixels of one
// channel in registers and broadcast every present weight once per tile.

template <class T>
REGROW_INLINE Vec<T> rectified(const Vec<T>& v, bool relu) { return relu ? (v < Vec<T>{} ? Vec<T>{} : v) : v; }

// Sums of N vectors for each output over its taps, block by block of input channels, so that inputs come from L1; between two blocks sums
// wait in L2. add(begin, end, sum) adds taps, finish(o, sum) takes what output o has.
template <class T, int N, class Add, class Finish>
REGROW_INLINE void over_blocks(const Task<T>& s, Range outputs, T* sums, Add add, Finish finish) {
  const int64_t L = kLanes<T>;
  for (int b = 0; b < s.blocks; b++) {
    const int64_t* begin = s.begin + int64_t(b) * s.out.channels;
    for (int64_t o = outputs.begin; o < outputs.end; o++) {
      T* mine = sums ? sums + (o - outputs.begin) * N * L : nullptr;
      Vec<T> sum[N];
      if (sums) REGROW_UNROLL for (int i = 0; i < N; i++) __builtin_prefetch(mine + (2 * N + i) * L, 1);
      if (b == 0) {
        REGROW_UNROLL for (int i = 0; i < N; i++) sum[i] = broadcast<T>(s.bias ? s.bias[o] : T(0));
      } else {
        REGROW_UNROLL for (int i = 0; i < N; i++) sum[i] = at(mine + i * L);
      }
      add(s.taps + begin[o], s.taps + begin[o + 1], sum);
      if (b + 1 < s.blocks) {
        REGROW_UNROLL for (int i = 0; i < N; i++) at(mine + i * L) = sum[i];
      } else {
        finish(o, sum);
      }
    }
  }
}

// Outputs that have the same taps share what they read.
constexpr int kDenseOutputs = 4, kDenseVectors = REGROW_TRAITS.registers >= 32 ? 4 : 2;

// The same where all outputs have the same taps, at least kDenseOutputs of them; vector i of a tap lies step(i) behind its first.
template <class T, int N, class Step, class Finish>
REGROW_INLINE void over_dense(const Task<T>& s, Range outputs, const T* in, Step step, Finish finish) {
  constexpr int O = kDenseOutputs;
  const int64_t count = s.before[1];
  for (int64_t next = outputs.begin; next < outputs.end; next += O) {
    const int64_t o = next + O > outputs.end ? outputs.end - O : next;
    const Tap<T>* taps = s.taps + o * count;
    Vec<T> sum[O][N];
    REGROW_UNROLL for (int j = 0; j < O; j++)
      REGROW_UNROLL for (int i = 0; i < N; i++) sum[j][i] = broadcast<T>(s.bias ? s.bias[o + j] : T(0));
    for (int64_t t = 0; t < count; t++) {
      Vec<T> x[N];
      REGROW_UNROLL for (int i = 0; i < N; i++) x[i] = loose(in + taps[t].offset + step(i));
      REGROW_UNROLL for (int j = 0; j < O; j++) {
        const Vec<T> w = broadcast<T>(taps[j * count + t].value);
        REGROW_UNROLL for (int i = 0; i < N; i++) sum[j][i] += w * x[i];
      }
    }
    REGROW_UNROLL for (int j = 0; j < O; j++) finish(o + j, sum[j]);
  }
}

// A window's pixels that are in the map: rows or columns [begin, end) of the input, by steps of the dilation.
REGROW_INLINE Range window_of(int at, int stride, int pad, int kernel, int dilation, int size) {
  int begin = at * stride - pad, end = begin + (kernel - 1) * dilation + 1;
  if (begin < 0) begin += (-begin + dilation - 1) / dilation * dilation;
  return {begin, end < size ? end : size};
}

// The larger of two numbers, or lanes; NaN stays.
template <class V>
REGROW_INLINE V larger(const V& a, const V& b) { return ((a >= b) | (a != a)) ? a : b; }

#include "program_samples.inl"
#include "program_pixels.inl"

// A pixel: one number, or a vector of samples.
template <class T, bool Samples>
struct Pixel {
  typedef T Value;
  static REGROW_INLINE const T& get(const T* p) { return *p; }
  static REGROW_INLINE void set(T* p, const T& v) { *p = v; }
};
template <class T>
struct Pixel<T, true> {
  typedef Vec<T> Value;
  static REGROW_INLINE const Vec<T>& get(const T* p) { return at(p); }
  static REGROW_INLINE void set(T* p, const Vec<T>& v) { at(p) = v; }
};

template <class T, bool Samples>
REGROW_INLINE typename Pixel<T, Samples>::Value pooled(const Task<T>& s, const T* plane, int row, int col) {
  typedef typename Pixel<T, Samples>::Value Value;
  const int64_t step = Samples ? kLanes<T> : 1;
  const Range rows = window_of(row, s.stride_rows, s.pad_top, s.kernel_rows, s.dilation_rows, s.in.rows);
  const Range cols = window_of(col, s.stride_cols, s.pad_left, s.kernel_cols, s.dilation_cols, s.in.cols);
  if (s.kind == Kind::average_pool) {
    Value sum{};
    for (int64_t r = rows.begin; r < rows.end; r += s.dilation_rows)
      for (int64_t c = cols.begin; c < cols.end; c += s.dilation_cols)
        sum += Pixel<T, Samples>::get(plane + (r * s.in.pitch + c) * step);
    return sum / T(int64_t(s.kernel_rows) * s.kernel_cols);
  }
  Value most = Pixel<T, Samples>::get(plane + (rows.begin * s.in.pitch + cols.begin) * step);
  for (int64_t r = rows.begin; r < rows.end; r += s.dilation_rows)
    for (int64_t c = cols.begin; c < cols.end; c += s.dilation_cols)
      most = larger(most, Pixel<T, Samples>::get(plane + (r * s.in.pitch + c) * step));
  return most;
}

template <class T, bool Samples>
void pool_channels(const Task<T>& s, T* arena, Range channels, Range rows) {
  const int64_t step = Samples ? kLanes<T> : 1;
  for (int64_t c = channels.begin; c < channels.end; c++) {
    const T* plane = arena + s.in.base + c * s.in.plane;
    T* out = arena + s.out.base + c * s.out.plane;
    for (int64_t row = rows.begin; row < rows.end; row++)
      for (int col = 0; col < s.out.cols; col++)
        Pixel<T, Samples>::set(out + (row * s.out.pitch + col) * step, pooled<T, Samples>(s, plane, int(row), col));
  }
}

// scale x + bias + other, rectified.
template <class T>
void scale_channels(const Task<T>& s, T* arena, Range channels, Range rows) {
  for (int64_t c = channels.begin; c < channels.end; c++) {
    const T scale = s.scale ? s.scale[c] : T(1), bias = s.bias ? s.bias[c] : T(0);
    for (int64_t row = rows.begin; row < rows.end; row++) {
      const T* in = arena + s.in.base + c * s.in.plane + row * s.in.pitch * s.innermost;
      const T* other = s.has_other ? arena + s.other.base + c * s.other.plane + row * s.other.pitch * s.innermost : nullptr;
      T* out = arena + s.out.base + c * s.out.plane + row * s.out.pitch * s.innermost;
      for (int64_t i = 0; i < int64_t(s.out.cols) * s.innermost; i++) {
        T v = scale * in[i] + bias;
        if (other) v += other[i];
        out[i] = s.relu && v < 0 ? T(0) : v;
      }
    }
  }
}

// Outputs that have as many taps as those of other parts.
template <class T>
REGROW_INLINE Range outputs_of(const Task<T>& s, int part, int parts) {
  const int64_t total = s.before[s.out.channels] + s.out.channels;
  int64_t bounds[2];
  for (int side = 0; side < 2; side++) {
    const int64_t wanted = total * (part + side) / parts;
    int64_t low = 0, high = s.out.channels;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (s.before[middle] + middle < wanted) low = middle + 1;
      else high = middle;
    }
    bounds[side] = low;
  }
  return {bounds[0], bounds[1]};
}

// One part of some rows of a step: some channels, or some places for all channels. Places are rows, or vectors of pixels (of all rows).
struct Portion {
  Range channels, places;
};
template <class T>
REGROW_INLINE Portion portion_of(const Task<T>& s, Range rows, int part, int parts) {
  const bool layer = s.kind == Kind::layer, vectors = layer && s.innermost == 1;
  const int64_t pixels = int64_t(s.rows - 1) * s.in.pitch + s.cols;
  const Range all = vectors ? Range{0, (pixels + kLanes<T> - 1) / kLanes<T>} : rows;
  const int64_t tile = !layer ? 1 : vectors ? s.tile_vectors : s.tile_rows, unit = s.pooled ? 2 : 1;
  if (s.by_place && all.end - all.begin >= parts * (tile + unit - 1)) {
    const Range mine = share((all.end - all.begin) / unit, part, parts);
    return {{0, layer ? s.out.channels : s.in.channels}, {all.begin + mine.begin * unit, all.begin + mine.end * unit}};
  }
  return {layer ? outputs_of(s, part, parts) : share(s.in.channels, part, parts), all};
}

template <class T>
void program_step(const Task<T>& s, T* arena, Range rows, int part, int parts) {
  const Portion mine = portion_of(s, rows, part, parts);
  const bool samples = s.innermost > 1;
  if (s.kind == Kind::layer) return samples ? sample_layer(s, arena, mine.channels, mine.places) : pixel_layer(s, arena, mine.channels, mine.places);
  if (s.kind == Kind::channels) return scale_channels(s, arena, mine.channels, mine.places);
  if (s.kind == Kind::split) return split_channels(s, arena, mine.channels, mine.places);
  if (samples) return pool_channels<T, true>(s, arena, mine.channels, mine.places);
  s.kind == Kind::max_pool ? max_pool_pixels(s, arena, mine.channels, mine.places) : pool_channels<T, false>(s, arena, mine.channels, mine.places);
}

// [sample][channel][row][col] into the arena; samples that are not there become zeros.
template <class T>
void program_load(const Site& to, int innermost, const T* x, int samples, T* arena, int part, int parts) {
  const int64_t map = int64_t(to.rows) * to.cols, sample = map * to.channels;
  const bool by_row = to.rows > to.channels;
  const Range channels = by_row ? Range{0, to.channels} : share(to.channels, part, parts), rows = by_row ? share(to.rows, part, parts) : Range{0, to.rows};
  for (int64_t c = channels.begin; c < channels.end; c++)
    for (int64_t row = rows.begin; row < rows.end; row++) {
      const T* from = x + c * map + row * to.cols;
      T* line = arena + to.base + c * to.plane + row * to.pitch * innermost;
      for (int col = 0; col < to.cols; col++)
        for (int n = 0; n < innermost; n++) line[int64_t(col) * innermost + n] = n < samples ? from[n * sample + col] : T(0);
    }
}

template <class T>
void program_store(const Site& from, int innermost, const T* arena, int samples, T* y, int part, int parts) {
  const int64_t map = int64_t(from.rows) * from.cols, sample = map * from.channels;
  const Range channels = share(from.channels, part, parts);
  for (int64_t c = channels.begin; c < channels.end; c++)
    for (int row = 0; row < from.rows; row++) {
      const T* line = arena + from.base + c * from.plane + int64_t(row) * from.pitch * innermost;
      T* to = y + c * map + int64_t(row) * from.cols;
      for (int n = 0; n < samples; n++)
        for (int col = 0; col < from.cols; col++) to[n * sample + col] = line[int64_t(col) * innermost + n];
    }
}
