// Steps of a program whose lanes are pixels, numbered as a layer's input has them, gaps included.

// Adds taps to V vectors; U chains of sums hide the latency of few.
template <class T, int V>
REGROW_INLINE void pixel_run(const T* in, const Tap<T>* tap, const Tap<T>* end, Vec<T> (&sum)[V]) {
  constexpr int U = V == 1 ? 8 : V == 2 ? 4 : V <= 4 ? 2 : 1;
  Vec<T> chain[U][V];
  REGROW_UNROLL for (int u = 0; u < U; u++)
    REGROW_UNROLL for (int i = 0; i < V; i++) chain[u][i] = u ? Vec<T>{} : sum[i];
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

// The pixels from `first` on of output o, as the step's target has them.
template <class T, int V>
REGROW_INLINE void finish_pixels(const Task<T>& s, T* arena, int64_t o, int64_t first, const Vec<T> (&sum)[V]) {
  const int64_t L = kLanes<T>;
  const bool alike = s.in.pitch == s.out.pitch && (!s.has_other || s.other.pitch == s.out.pitch);
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

template <class T, int V>
void pixel_layer_tiles(const Task<T>& s, T* arena, Range outputs, Range vectors) {
  static thread_local Scratch scratch;
  T* const sums = s.blocks > 1 ? scratch.get<T>(size_t(outputs.end - outputs.begin) * V * kLanes<T>) : nullptr;
  for (int64_t vector = vectors.begin; vector < vectors.end; vector += V) {
    const int64_t first = (vector + V > vectors.end ? vectors.end - V : vector) * kLanes<T>;
    const T* in = arena + s.in.base + first;
    over_blocks<T, V>(
        s, outputs, sums,
        [&](const Tap<T>* tap, const Tap<T>* end, Vec<T>(&sum)[V]) __attribute__((always_inline)) { pixel_run<T, V>(in, tap, end, sum); },
        [&](int64_t o, const Vec<T>(&sum)[V]) __attribute__((always_inline)) { finish_pixels<T, V>(s, arena, o, first, sum); });
  }
}

template <class T>
void dense_pixel_layer(const Task<T>& s, T* arena, Range outputs, Range vectors) {
  constexpr int V = kDenseVectors;
  for (int64_t vector = vectors.begin; vector < vectors.end; vector += V) {
    const int64_t first = (vector + V > vectors.end ? vectors.end - V : vector) * kLanes<T>;
    over_dense<T, V>(
        s, outputs, arena + s.in.base + first, [](int i) __attribute__((always_inline)) { return i * kLanes<T>; },
        [&](int64_t o, const Vec<T>(&sum)[V]) __attribute__((always_inline)) { finish_pixels<T, V>(s, arena, o, first, sum); });
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
void pixel_layer(const Task<T>& s, T* arena, Range outputs, Range vectors) {
  if (s.dense && vectors.end - vectors.begin >= kDenseVectors && outputs.end - outputs.begin >= kDenseOutputs)
    return dense_pixel_layer(s, arena, outputs, vectors);
  switch (s.tile_vectors) {
#define WIDTH(V) \
  case V: return pixel_layer_tiles<T, V>(s, arena, outputs, vectors);
    WIDTH(1) WIDTH(2) WIDTH(3) WIDTH(4) WIDTH(5) WIDTH(6) WIDTH(7) WIDTH(8)
#undef WIDTH
    default: return single_pixel_layer(s, arena, outputs);
  }
}

// Maps into one plane per residue of the stride, padded with zeros, as another tensor may have lain there; one sample.
template <class T>
void split_channels(const Task<T>& s, T* arena, Range channels, Range rows) {
  const int phases = s.phase_rows * s.phase_cols;
  for (int64_t c = channels.begin; c < channels.end; c++)
    for (int phase = 0; phase < phases; phase++) {
      T* plane = arena + s.out.base + (c * phases + phase) * s.out.plane;
      const int shift = phase % s.phase_cols - s.pad_left;
      const int begin = shift < 0 ? (s.stride_cols - 1 - shift) / s.stride_cols : 0;
      const int fits = s.in.cols > shift ? (s.in.cols - shift + s.stride_cols - 1) / s.stride_cols : 0, end = fits < s.out.cols ? fits : s.out.cols;
      for (int64_t r = rows.begin; r < rows.end; r++) {
        const int64_t row = r * s.stride_rows + phase / s.phase_cols - s.pad_top;
        const bool inside = row >= 0 && row < s.in.rows;
        const T* in = arena + s.in.base + c * s.in.plane + (inside ? row : 0) * s.in.pitch + shift;
        T* out = plane + r * s.out.pitch;
        const int from = inside ? begin : s.out.cols, to = inside ? end : 0;
        for (int q = 0; q < from && q < s.out.cols; q++) out[q] = T(0);
        if (s.stride_cols == 2)
          for (int q = from; q < to; q++) out[q] = in[2 * q];
        else
          for (int q = from; q < to; q++) out[q] = in[int64_t(q) * s.stride_cols];
        for (int q = to > from ? to : from; q < s.out.cols; q++) out[q] = T(0);
      }
    }
}

// Maxima of the rows of a window, then of its columns.
template <class T>
void max_pool_pixels(const Task<T>& s, T* arena, Range channels, Range rows) {
  const int64_t L = kLanes<T>;
  static thread_local Scratch scratch;
  // Vectors reach beyond the map: by one, and by the window's columns.
  const size_t width = size_t((s.in.cols + L - 1) / L + 1) * L + size_t(s.kernel_cols * s.dilation_cols);
  T *const most = scratch.get<T>(width + size_t(s.in.cols + L)), *const whole = most + (width + L - 1) / L * L;
  for (int64_t c = channels.begin; c < channels.end; c++)
    for (int64_t row = rows.begin; row < rows.end; row++) {
      const Range window = window_of(int(row), s.stride_rows, s.pad_top, s.kernel_rows, s.dilation_rows, s.in.rows);
      const T* in = arena + s.in.base + c * s.in.plane;
      T* out = arena + s.out.base + c * s.out.plane + row * s.out.pitch;
      for (int64_t q = 0; q < s.in.cols; q += L) {
        Vec<T> v = loose(in + window.begin * s.in.pitch + q);
        for (int64_t r = window.begin + s.dilation_rows; r < window.end; r += s.dilation_rows) v = larger(v, loose(in + r * s.in.pitch + q));
        at(most + q) = v;
      }
      // Maxima of windows as if they were inside, a vector at a time; those that hang over the border one by one.
      const int reach = (s.kernel_cols - 1) * s.dilation_cols + 1;
      for (int64_t q = 0; q + reach <= s.in.cols; q += L) {
        Vec<T> v = loose(most + q);
        for (int k = s.dilation_cols; k < reach; k += s.dilation_cols) v = larger(v, loose(most + q + k));
        at(whole + q) = v;
      }
      for (int col = 0; col < s.out.cols; col++) {
        const int64_t first = int64_t(col) * s.stride_cols - s.pad_left;
        if (first >= 0 && first + reach <= s.in.cols) {
          out[col] = whole[first];
          continue;
        }
        const Range across = window_of(col, s.stride_cols, s.pad_left, s.kernel_cols, s.dilation_cols, s.in.cols);
        T v = most[across.begin];
        for (int64_t q = across.begin + s.dilation_cols; q < across.end; q += s.dilation_cols) v = larger(v, most[q]);
        out[col] = v;
      }
    }
}
