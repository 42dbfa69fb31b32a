// One sample, or a few: lanes are pixels. See PixelLayer in records.inc for the layout.

constexpr int kPixelVectors = 8;  // most vectors of one tile

// y[0 .. V vectors) = bias + sum over entries of value * input at the entry's offset; U chains of sums hide the latency of few vectors.
template <class T, int V>
REGROW_INLINE void pixel_tile(const T* in, const int32_t* offset, const T* value, int64_t count, T bias, bool relu, T* out) {
  constexpr int U = V == 1 ? 8 : V == 2 ? 4 : V <= 4 ? 2 : 1;
  Vec<T> sum[U][V];
  REGROW_UNROLL for (int u = 0; u < U; u++)
    REGROW_UNROLL for (int i = 0; i < V; i++) sum[u][i] = broadcast<T>(u ? T(0) : bias);
  int64_t e = 0;
  for (; e + U <= count; e += U)
    REGROW_UNROLL for (int u = 0; u < U; u++) {
      const Vec<T> w = broadcast<T>(value[e + u]);
      const T* p = in + offset[e + u];
      REGROW_UNROLL for (int i = 0; i < V; i++) sum[u][i] += w * loose(p + i * kLanes<T>);
    }
  for (; e < count; e++) {
    const Vec<T> w = broadcast<T>(value[e]);
    const T* p = in + offset[e];
    REGROW_UNROLL for (int i = 0; i < V; i++) sum[0][i] += w * loose(p + i * kLanes<T>);
  }
  REGROW_UNROLL for (int u = 1; u < U; u++)
    REGROW_UNROLL for (int i = 0; i < V; i++) sum[0][i] += sum[u][i];
  REGROW_UNROLL for (int i = 0; i < V; i++) {
    if (relu) sum[0][i] = sum[0][i] < Vec<T>{} ? Vec<T>{} : sum[0][i];
    loose(out + i * kLanes<T>) = sum[0][i];
  }
}

// A single output pixel: a dot product with gathered inputs.
template <class T>
REGROW_INLINE T pixel_dot(const T* in, const int32_t* offset, const T* value, int64_t count, T bias) {
  constexpr int U = 8;
  T sum[U] = {bias};
  int64_t e = 0;
  for (; e + U <= count; e += U)
    REGROW_UNROLL for (int u = 0; u < U; u++) sum[u] += value[e + u] * in[offset[e + u]];
  for (; e < count; e++) sum[0] += value[e] * in[offset[e]];
  REGROW_UNROLL for (int u = 1; u < U; u++) sum[0] += sum[u];
  return sum[0];
}

// Input channels of one sample into their padded planes, one per residue of the stride.
template <class T>
void pixel_pack(const PixelLayer<T>& s, const T* x, T* packed, Range channels) {
  const int64_t phase = int64_t(s.plane_rows) * s.plane_cols, plane = phase * s.stride_rows * s.stride_cols;
  for (int64_t c = channels.begin; c < channels.end; c++) {
    T* to = packed + c * plane;
    for (int64_t i = 0; i < plane; i++) to[i] = 0;
    for (int row = 0; row < s.in_rows; row++) {
      const int r = row + s.pad_top;
      if (r / s.stride_rows >= s.plane_rows) break;
      const T* from = x + (c * s.in_rows + row) * s.in_cols;
      T* line = to + phase * (r % s.stride_rows * s.stride_cols) + int64_t(r / s.stride_rows) * s.plane_cols;
      if (s.stride_cols == 1) {
        for (int col = 0; col < s.in_cols && col + s.pad_left < s.plane_cols; col++) line[col + s.pad_left] = from[col];
      } else {
        for (int col = 0; col < s.in_cols; col++) {
          const int at_col = col + s.pad_left;
          if (at_col / s.stride_cols < s.plane_cols) line[phase * (at_col % s.stride_cols) + at_col / s.stride_cols] = from[col];
        }
      }
    }
  }
}

// Pixels [begin, begin + count) of a plane's numbering, at the places of the output map.
template <class T>
REGROW_INLINE void pixel_rows(const PixelLayer<T>& s, const T* from, int64_t begin, int64_t count, T* y) {
  for (int64_t row = begin / s.plane_cols; row < s.out_rows; row++) {
    const int64_t start = row * s.plane_cols, first = begin > start ? begin : start;
    const int64_t last = begin + count < start + s.out_cols ? begin + count : start + s.out_cols;
    if (first >= begin + count) return;
    for (int64_t q = first; q < last; q++) y[row * s.out_cols + q - start] = from[q - begin];
  }
}

template <class T>
void pixel_layer(const PixelLayer<T>& s, const T* packed, T* y, int part, int parts) {
  const int64_t pixels = int64_t(s.out_rows - 1) * s.plane_cols + s.out_cols, map = int64_t(s.out_rows) * s.out_cols;
  if (pixels == 1) {
    const Range mine = share(s.out_channels, part, parts);
    for (int64_t o = mine.begin; o < mine.end; o++) {
      const int64_t first = s.row_begin[o];
      const T sum = pixel_dot<T>(packed, s.offset + first, s.values + first, s.row_begin[o + 1] - first, s.bias ? s.bias[o] : T(0));
      y[o] = s.relu && sum < 0 ? T(0) : sum;
    }
    return;
  }
  const int64_t vectors = (pixels + kLanes<T> - 1) / kLanes<T>, tiles = (vectors + kPixelVectors - 1) / kPixelVectors;
  const int width = int((vectors + tiles - 1) / tiles);
  const Range mine = share(tiles * s.out_channels, part, parts);
  alignas(64) T out[kPixelVectors * kLanes<T>];
  for (int64_t item = mine.begin; item < mine.end; item++) {
    const int64_t o = item % s.out_channels, begin = item / s.out_channels * width * kLanes<T>, first = s.row_begin[o];
    if (begin >= pixels) continue;
    const int64_t entries = s.row_begin[o + 1] - first, left = pixels - begin;
    const T bias = s.bias ? s.bias[o] : T(0);
    const bool relu = s.relu != 0;
    switch (width) {
#define WIDTH(V) \
  case V: pixel_tile<T, V>(packed + begin, s.offset + first, s.values + first, entries, bias, relu, out); break;
      WIDTH(1) WIDTH(2) WIDTH(3) WIDTH(4) WIDTH(5) WIDTH(6) WIDTH(7) WIDTH(8)
#undef WIDTH
    }
    pixel_rows(s, out, begin, left < width * kLanes<T> ? left : width * kLanes<T>, y + o * map);
  }
}
