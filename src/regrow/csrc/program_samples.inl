// Layers of a program whose lanes are samples.

// Adds taps to R x C pixels; U chains of sums hide the latency of few pixels.
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
REGROW_INLINE void finish_tile(const Task<T>& s, T* arena, int64_t o, int row, int col, Vec<T> (&sum)[R * C]) {
  const int64_t L = kLanes<T>;
  if (s.has_other) {
    const T* other = arena + s.other.base + o * s.other.plane + (int64_t(row) * s.other.pitch + col) * L;
    REGROW_UNROLL for (int r = 0; r < R; r++)
      REGROW_UNROLL for (int c = 0; c < C; c++) sum[r * C + c] += at(other + (int64_t(r) * s.other.pitch + c) * L);
  }
  T* out = arena + s.out.base + o * s.out.plane;
  if constexpr (R % 2 == 0 && C % 2 == 0)
    if (s.pooled) {
      out += (int64_t(row / 2) * s.out.pitch + col / 2) * L;
      REGROW_UNROLL for (int r = 0; r < R / 2; r++)
        REGROW_UNROLL for (int c = 0; c < C / 2; c++) {
          const Vec<T>* v = sum + 2 * r * C + 2 * c;
          at(out + (int64_t(r) * s.out.pitch + c) * L) = rectified<T>(larger(larger(v[0], v[1]), larger(v[C], v[C + 1])), s.relu);
        }
      return;
    }
  out += (int64_t(row) * s.out.pitch + col) * L;
  REGROW_UNROLL for (int r = 0; r < R; r++)
    REGROW_UNROLL for (int c = 0; c < C; c++) at(out + (int64_t(r) * s.out.pitch + c) * L) = rectified<T>(sum[r * C + c], s.relu);
}

// Calls body(row, col) for tiles that cover some rows of the map; the last ones overlap those before them.
template <class T, int R, int C, class Body>
REGROW_INLINE void over_tiles(const Task<T>& s, Range rows, Body body) {
  for (int row = int(rows.begin); row < rows.end; row += R)
    for (int col = 0; col < s.cols; col += C) body(row + R > rows.end ? int(rows.end) - R : row, col + C > s.cols ? s.cols - C : col);
}

template <class T, int R, int C, bool Unit>
void sample_layer_tiles(const Task<T>& s, T* arena, Range outputs, Range rows) {
  constexpr int P = R * C;
  const int64_t row_step = int64_t(s.in.pitch) * s.stride_rows * kLanes<T>, col_step = s.stride_cols * kLanes<T>;
  static thread_local Scratch scratch;
  T* const sums = s.blocks > 1 ? scratch.get<T>(size_t(outputs.end - outputs.begin) * P * kLanes<T>) : nullptr;
  over_tiles<T, R, C>(s, rows, [&](int row, int col) __attribute__((always_inline)) {
    const T* in = arena + s.in.base + row * row_step + col * col_step;
    over_blocks<T, P>(
        s, outputs, sums,
        [&](const Tap<T>* tap, const Tap<T>* end, Vec<T>(&sum)[P])
            __attribute__((always_inline)) { sample_tile<T, R, C, Unit>(in, row_step, col_step, tap, end, sum); },
        [&](int64_t o, Vec<T>(&sum)[P]) __attribute__((always_inline)) { finish_tile<T, R, C>(s, arena, o, row, col, sum); });
  });
}

template <class T, int R, int C>
void dense_sample_layer(const Task<T>& s, T* arena, Range outputs, Range rows) {
  const int64_t row_step = int64_t(s.in.pitch) * s.stride_rows * kLanes<T>, col_step = s.stride_cols * kLanes<T>;
  over_tiles<T, R, C>(s, rows, [&](int row, int col) __attribute__((always_inline)) {
    over_dense<T, R * C>(
        s, outputs, arena + s.in.base + row * row_step + col * col_step,
        [&](int i) __attribute__((always_inline)) { return i / C * row_step + i % C * col_step; },
        [&](int64_t o, Vec<T>(&sum)[R * C]) __attribute__((always_inline)) { finish_tile<T, R, C>(s, arena, o, row, col, sum); });
  });
}

template <class T>
void sample_layer(const Task<T>& s, T* arena, Range outputs, Range rows) {
  const bool unit = s.stride_cols == 1;
  if (s.dense && outputs.end - outputs.begin >= kDenseOutputs) {
    if (!s.pooled && s.cols >= kDenseVectors) return dense_sample_layer<T, 1, kDenseVectors>(s, arena, outputs, rows);
    if (s.pooled && kDenseVectors == 4) return dense_sample_layer<T, 2, 2>(s, arena, outputs, rows);
  }
#define SHAPE(R, C)                                                                 \
  if (s.tile_rows == R && s.tile_cols == C)                                         \
    return unit ? sample_layer_tiles<T, R, C, true>(s, arena, outputs, rows) : sample_layer_tiles<T, R, C, false>(s, arena, outputs, rows);
#define SHAPES(R) SHAPE(R, 1) SHAPE(R, 2) SHAPE(R, 3) SHAPE(R, 4) SHAPE(R, 5) SHAPE(R, 6) SHAPE(R, 7) SHAPE(R, 8)
  SHAPES(1) SHAPES(2) SHAPES(3)
  SHAPE(4, 1) SHAPE(4, 2) SHAPE(4, 3) SHAPE(4, 4) SHAPE(4, 5) SHAPE(4, 6)
#undef SHAPES
#undef SHAPE
}
