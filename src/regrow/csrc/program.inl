// Steps of a program (program.h). Layers: output pixels of one channel in registers, every present weight broadcast once per tile.

template <class T>
REGROW_INLINE Vec<T> rectified(const Vec<T>& v, bool relu) { return relu ? (v < Vec<T>{} ? Vec<T>{} : v) : v; }

// The outputs of one share, so that shares have as many taps.
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

// Lanes are samples: adds taps to R x C pixels; U chains of sums hide the latency of few pixels.
template <class T, int R, int C, bool Unit>
REGROW_INLINE void sample_tile(const T* in, int64_t row_step, int64_t col_step, const Tap<T>* tap, const Tap<T>* end, Vec<T> (&sum)[R * C]) {
  constexpr int P = R * C, U = P == 1 ? 8 : P <= 3 ? 4 : P <= 6 ? 2 : 1;
  if constexpr (Unit) col_step = kLanes<T>;
  Vec<T> chain[U][P];
  REGROW_UNROLL for (int u = 0; u < U; u++)
    REGROW_UNROLL for (int i = 0; i < P; i++) chain[u][i] = u ? Vec<T>{} : sum[i];
  const auto add = [&](const Tap<T>& one, Vec<T>(&to)[P]) __attribute__((always_inline)) {
    const Vec<T> w = broadcast<T>(one.value);
    const T* p = in + one.offset;
    REGROW_UNROLL for (int r = 0; r < R; r++)
      REGROW_UNROLL for (int c = 0; c < C; c++) to[r * C + c] += w * at(p + r * row_step + c * col_step);
  };
  for (; tap + U <= end; tap += U)
    REGROW_UNROLL for (int u = 0; u < U; u++) add(tap[u], chain[u]);
  for (; tap < end; tap++) add(*tap, chain[0]);
  REGROW_UNROLL for (int i = 0; i < P; i++) {
    sum[i] = chain[0][i];
    REGROW_UNROLL for (int u = 1; u < U; u++) sum[i] += chain[u][i];
  }
}

// A tile's pixels of output o, as the step's target has them.
template <class T, int R, int C>
REGROW_INLINE void finish_tile(const Task<T>& s, T* arena, int64_t o, int row, int col, const Vec<T> (&sum)[R * C]) {
  const int64_t L = kLanes<T>;
  T* out = arena + s.out.base + o * s.out.plane + (int64_t(row) * s.out.pitch + col) * L;
  const T* other = s.has_other ? arena + s.other.base + o * s.other.plane + (int64_t(row) * s.other.pitch + col) * L : nullptr;
  REGROW_UNROLL for (int r = 0; r < R; r++)
    REGROW_UNROLL for (int c = 0; c < C; c++) {
      Vec<T> v = sum[r * C + c];
      if (other) v += at(other + (int64_t(r) * s.other.pitch + c) * L);
      at(out + (int64_t(r) * s.out.pitch + c) * L) = rectified<T>(v, s.relu);
    }
}

// Sums of all outputs wait in L2 (`sums`) for the next block of input channels, so that inputs come from L1.
template <class T, int R, int C, bool Unit>
void sample_layer_tiles(const Task<T>& s, T* arena, Range outputs) {
  constexpr int P = R * C;
  const int64_t L = kLanes<T>, row_step = int64_t(s.in.pitch) * s.stride_rows * L, col_step = s.stride_cols * L;
  static thread_local Scratch scratch;
  T* const sums = s.blocks > 1 ? scratch.get<T>(size_t(outputs.end - outputs.begin) * P * kLanes<T>) : nullptr;
  for (int row = 0; row < s.out.rows; row += R)
    for (int col = 0; col < s.out.cols; col += C) {
      const int r0 = row + R > s.out.rows ? s.out.rows - R : row, c0 = col + C > s.out.cols ? s.out.cols - C : col;
      const T* in = arena + s.in.base + r0 * row_step + c0 * col_step;
      for (int b = 0; b < s.blocks; b++) {
        const int64_t* begin = s.begin + int64_t(b) * s.out.channels;
        for (int64_t o = outputs.begin; o < outputs.end; o++) {
          T* mine = sums ? sums + (o - outputs.begin) * P * L : nullptr;
          Vec<T> sum[P];
          if (sums) REGROW_UNROLL for (int i = 0; i < P; i++) __builtin_prefetch(mine + (2 * P + i) * L, 1);
          if (b == 0) {
            REGROW_UNROLL for (int i = 0; i < P; i++) sum[i] = broadcast<T>(s.bias ? s.bias[o] : T(0));
          } else {
            REGROW_UNROLL for (int i = 0; i < P; i++) sum[i] = at(mine + i * L);
          }
          sample_tile<T, R, C, Unit>(in, row_step, col_step, s.taps + begin[o], s.taps + begin[o + 1], sum);
          if (b + 1 < s.blocks) {
            REGROW_UNROLL for (int i = 0; i < P; i++) at(mine + i * L) = sum[i];
          } else {
            finish_tile<T, R, C>(s, arena, o, r0, c0, sum);
          }
        }
      }
    }
}

template <class T>
void sample_layer(const Task<T>& s, T* arena, Range outputs) {
  const bool unit = s.stride_cols == 1;
#define SHAPE(R, C)                                                                 \
  if (s.tile_rows == R && s.tile_cols == C)                                         \
    return unit ? sample_layer_tiles<T, R, C, true>(s, arena, outputs) : sample_layer_tiles<T, R, C, false>(s, arena, outputs);
#define SHAPES(R) SHAPE(R, 1) SHAPE(R, 2) SHAPE(R, 3) SHAPE(R, 4) SHAPE(R, 5) SHAPE(R, 6) SHAPE(R, 7) SHAPE(R, 8)
  SHAPES(1) SHAPES(2) SHAPES(3)
  SHAPE(4, 1) SHAPE(4, 2) SHAPE(4, 3) SHAPE(4, 4) SHAPE(4, 5) SHAPE(4, 6)
#undef SHAPES
#undef SHAPE
}

// Lanes are pixels, V vectors of them in a row of the input's numbering.
template <class T, int V>
REGROW_INLINE void pixel_run(const T* in, const Tap<T>* tap, const Tap<T>* end, T bias, Vec<T> (&sum)[V]) {
  constexpr int U = V == 1 ? 8 : V == 2 ? 4 : V <= 4 ? 2 : 1;
  Vec<T> chain[U][V];
  REGROW_UNROLL for (int u = 0; u < U; u++)
    REGROW_UNROLL for (int i = 0; i < V; i++) chain[u][i] = broadcast<T>(u ? T(0) : bias);
  const auto add = [&](const Tap<T>& one, Vec<T>(&to)[V]) __attribute__((always_inline)) {
    const Vec<T> w = broadcast<T>(one.value);
    const T* p = in + one.offset;
    REGROW_UNROLL for (int i = 0; i < V; i++) to[i] += w * loose(p + i * kLanes<T>);
  };
  for (; tap + U <= end; tap += U)
    REGROW_UNROLL for (int u = 0; u < U; u++) add(tap[u], chain[u]);
  for (; tap < end; tap++) add(*tap, chain[0]);
  REGROW_UNROLL for (int i = 0; i < V; i++) {
    sum[i] = chain[0][i];
    REGROW_UNROLL for (int u = 1; u < U; u++) sum[i] += chain[u][i];
  }
}

// Numbers [first, first + count) of the input's numbering of pixels, at their places in the output, with what is added there.
template <class T>
REGROW_INLINE void place_pixels(const Task<T>& s, const T* from, int64_t first, int64_t count, T* out, const T* other) {
  // Where the padding is larger than the kernel, rows of the output are longer than the input's: the row before may end in here.
  const int64_t top = first < s.out.cols ? 0 : (first - s.out.cols) / s.in.pitch + 1;
  for (int64_t row = top; row < s.out.rows; row++) {
    const int64_t start = row * s.in.pitch, low = first > start ? first : start;
    const int64_t high = first + count < start + s.out.cols ? first + count : start + s.out.cols;
    if (low >= first + count) return;
    for (int64_t q = low; q < high; q++) {
      T v = from[q - first];
      if (other) v += other[row * s.other.pitch + q - start];
      out[row * s.out.pitch + q - start] = s.relu && v < 0 ? T(0) : v;
    }
  }
}

template <class T, int V>
void pixel_layer_tiles(const Task<T>& s, T* arena, Range outputs) {
  const int64_t L = kLanes<T>, pixels = int64_t(s.out.rows - 1) * s.in.pitch + s.out.cols, vectors = (pixels + L - 1) / L;
  const bool alike = s.in.pitch == s.out.pitch && (!s.has_other || s.other.pitch == s.out.pitch);
  for (int64_t vector = 0; vector < vectors; vector += V) {
    const int64_t first = (vector + V > vectors ? vectors - V : vector) * L;
    for (int64_t o = outputs.begin; o < outputs.end; o++) {
      Vec<T> sum[V];
      pixel_run<T, V>(arena + s.in.base + first, s.taps + s.begin[o], s.taps + s.begin[o + 1], s.bias ? s.bias[o] : T(0), sum);
      T* out = arena + s.out.base + o * s.out.plane;
      const T* other = s.has_other ? arena + s.other.base + o * s.other.plane : nullptr;
      if (alike) {
        REGROW_UNROLL for (int i = 0; i < V; i++) {
          Vec<T> v = sum[i];
          if (other) v += at(other + first + i * L);
          typedef typename Simd<T>::Integers Bits;
          at(out + first + i * L) = (Vec<T>)((Bits)rectified<T>(v, s.relu) & (Bits)at(s.keep + first + i * L));
        }
      } else {
        alignas(kLine) T flat[V * kLanes<T>];
        REGROW_UNROLL for (int i = 0; i < V; i++) at(flat + i * L) = sum[i];
        place_pixels(s, flat, first, V * L, out, other);
      }
    }
  }
}

// One output pixel: dot products with what lies at the taps.
template <class T>
void single_pixel_layer(const Task<T>& s, T* arena, Range outputs) {
  constexpr int U = 8;
  const T* in = arena + s.in.base;
  for (int64_t o = outputs.begin; o < outputs.end; o++) {
    const Tap<T>*tap = s.taps + s.begin[o], *end = s.taps + s.begin[o + 1];
    T sum[U] = {s.bias ? s.bias[o] : T(0)};
    for (; tap + U <= end; tap += U)
      REGROW_UNROLL for (int u = 0; u < U; u++) sum[u] += tap[u].value * in[tap[u].offset];
    for (; tap < end; tap++) sum[0] += tap->value * in[tap->offset];
    T total = ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
    if (s.has_other) total += arena[s.other.base + o * s.other.plane];
    arena[s.out.base + o * s.out.plane] = s.relu && total < 0 ? T(0) : total;
  }
}

template <class T>
void pixel_layer_of(const Task<T>& s, T* arena, Range outputs) {
  switch (s.tile_vectors) {
#define WIDTH(V) \
  case V: return pixel_layer_tiles<T, V>(s, arena, outputs);
    WIDTH(1) WIDTH(2) WIDTH(3) WIDTH(4) WIDTH(5) WIDTH(6) WIDTH(7) WIDTH(8)
#undef WIDTH
    default: return single_pixel_layer(s, arena, outputs);
  }
}


// A window's pixels that are in the map: rows or columns [begin, end) of the input, by steps of the dilation.
REGROW_INLINE Range window_of(int at, int stride, int pad, int kernel, int dilation, int size) {
  int begin = at * stride - pad, end = begin + (kernel - 1) * dilation + 1;
  if (begin < 0) begin += (-begin + dilation - 1) / dilation * dilation;
  return {begin, end < size ? end : size};
}

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
    for (int64_t c = cols.begin; c < cols.end; c += s.dilation_cols) {
      const Value v = Pixel<T, Samples>::get(plane + (r * s.in.pitch + c) * step);
      most = ((most >= v) | (most != most)) ? most : v;  // NaN stays
    }
  return most;
}

template <class T, bool Samples>
void pool_channels(const Task<T>& s, T* arena, Range channels) {
  const int64_t step = Samples ? kLanes<T> : 1;
  for (int64_t c = channels.begin; c < channels.end; c++) {
    const T* plane = arena + s.in.base + c * s.in.plane;
    T* out = arena + s.out.base + c * s.out.plane;
    for (int row = 0; row < s.out.rows; row++)
      for (int col = 0; col < s.out.cols; col++)
        Pixel<T, Samples>::set(out + (int64_t(row) * s.out.pitch + col) * step, pooled<T, Samples>(s, plane, row, col));
  }
}

// scale x + bias + other, rectified.
template <class T>
void scale_channels(const Task<T>& s, T* arena, Range channels) {
  for (int64_t c = channels.begin; c < channels.end; c++) {
    const T scale = s.scale ? s.scale[c] : T(1), bias = s.bias ? s.bias[c] : T(0);
    for (int row = 0; row < s.out.rows; row++) {
      const T* in = arena + s.in.base + c * s.in.plane + int64_t(row) * s.in.pitch * s.innermost;
      const T* other = s.has_other ? arena + s.other.base + c * s.other.plane + int64_t(row) * s.other.pitch * s.innermost : nullptr;
      T* out = arena + s.out.base + c * s.out.plane + int64_t(row) * s.out.pitch * s.innermost;
      for (int64_t i = 0; i < int64_t(s.out.cols) * s.innermost; i++) {
        T v = scale * in[i] + bias;
        if (other) v += other[i];
        out[i] = s.relu && v < 0 ? T(0) : v;
      }
    }
  }
}

// Maps into one plane per residue of the stride, padded with zeros, as another tensor may have lain there; one sample.
template <class T>
void split_channels(const Task<T>& s, T* arena, Range channels) {
  const int phases = s.phase_rows * s.phase_cols;
  for (int64_t c = channels.begin; c < channels.end; c++)
    for (int phase = 0; phase < phases; phase++) {
      T* out = arena + s.out.base + (c * phases + phase) * s.out.plane;
      for (int r = 0; r < s.out.rows; r++) {
        const int row = r * s.stride_rows + phase / s.phase_cols - s.pad_top;
        const bool inside = row >= 0 && row < s.in.rows;
        const T* in = arena + s.in.base + c * s.in.plane + int64_t(inside ? row : 0) * s.in.pitch;
        for (int q = 0; q < s.out.cols; q++) {
          const int col = q * s.stride_cols + phase % s.phase_cols - s.pad_left;
          out[int64_t(r) * s.out.pitch + q] = inside && col >= 0 && col < s.in.cols ? in[col] : T(0);
        }
      }
    }
}

template <class T>
void program_step(const Task<T>& s, T* arena, int part, int parts) {
  if (s.kind == Kind::layer) {
    const Range outputs = outputs_of(s, part, parts);
    return s.innermost == 1 ? pixel_layer_of(s, arena, outputs) : sample_layer(s, arena, outputs);
  }
  const Range channels = share(s.in.channels, part, parts);
  if (s.kind == Kind::channels) return scale_channels(s, arena, channels);
  if (s.kind == Kind::split) return split_channels(s, arena, channels);
  s.innermost == 1 ? pool_channels<T, false>(s, arena, channels) : pool_channels<T, true>(s, arena, channels);
}

// [sample][channel][row][col] into the arena; samples that are not there become zeros.
template <class T>
void program_load(const Site& to, int innermost, const T* x, int samples, T* arena, int part, int parts) {
  const int64_t map = int64_t(to.rows) * to.cols, sample = map * to.channels;
  const Range channels = share(to.channels, part, parts);
  for (int64_t c = channels.begin; c < channels.end; c++)
    for (int row = 0; row < to.rows; row++) {
      const T* from = x + c * map + int64_t(row) * to.cols;
      T* line = arena + to.base + c * to.plane + int64_t(row) * to.pitch * innermost;
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
