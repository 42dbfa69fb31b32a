// Between tensors of [pixels][lanes] and tiles in scratch memory: packing, unpacking, prefetching. Included by walk.inl.

// Where one tile lies.
struct Place {
  int row, col;  // first output pixel, in the stencil's own grid
  int64_t lane;  // first lane
  int lanes;     // lanes in use
  int strips;    // ceil(lanes / (V * kLanes))
};

// First lane of output pixel (i, j) of the tile.
REGROW_INLINE int64_t output_at(const Stencil& s, int64_t lanes, int out, const Place& p, int i, int j) {
  const int64_t row = s.row0 + (int64_t)s.row_step * (p.row + i), col = s.col0 + (int64_t)s.col_step * (p.col + j);
  return ((out * (int64_t)s.out_rows + row) * s.out_cols + col) * lanes + p.lane;
}

// One pixel's lanes, split over strips: to[strip][V vectors] <- from[lanes], zeros behind the last lane.
template <class T, int V>
REGROW_INLINE void split(T* to, size_t strip_size, const T* from, const Place& p) {
  constexpr int width = V * kLanes<T>;
  const int whole = p.lanes / width, rest = p.lanes % width;
  for (int o = 0; o < whole; o++, to += strip_size, from += width)
    REGROW_UNROLL for (int v = 0; v < width; v += kLanes<T>) at(to + v) = loose(from + v);
  if (rest)
    REGROW_UNROLL for (int v = 0; v < width; v += kLanes<T>) at(to + v) = v < rest ? first_lanes(from + v, rest - v) : Vec<T>{};
}

template <class T, int V>
REGROW_INLINE void clear(T* to, size_t strip_size, int pixels, const Place& p) {
  for (int o = 0; o < p.strips; o++, to += strip_size)
    for (int i = 0; i < pixels * V; i++) at(to + i * kLanes<T>) = Vec<T>{};
}

// The vector of a row of `width` numbers at a place, zeros outside the row.
template <class T>
REGROW_INLINE Vec<T> of_row(const T* row, int64_t place, int64_t width) {
  if (place >= 0 && place + kLanes<T> <= width) return loose(row + place);
  return lanes_between(row + place, int(place < 0 ? -place : 0), int(width - place < kLanes<T> ? width - place : kLanes<T>));
}

// First number of vector i of row j of the tile, and how many of it exist; lanes are columns.
struct Across {
  int64_t at;
  int lanes;
};
template <class T>
REGROW_INLINE Across output_across(const Stencil& s, int out, const Place& p, int i, int j) {
  const int64_t width = int64_t(s.out_cols) * s.across, first = int64_t(p.row + i) * kLanes<T>, left = width - first;
  return {(int64_t(out) * s.out_rows + p.col + j) * width + first, int(left < kLanes<T> ? left : kLanes<T>)};
}

// Lanes are columns: packed[channel][vector of a row, shift][halo row] <- x, zero outside the map and where no output is.
template <class T>
void pack_across(T* packed, const Stencil& s, const T* x, int channel, int channels, const Place& p) {
  const int64_t width = int64_t(s.in_cols) * s.across, out_width = int64_t(s.out_cols) * s.across;
  const int top = p.col + s.dx0;
  const int from = top < 0 ? -top : 0, to = s.in_rows - top < s.halo_cols ? s.in_rows - top : s.halo_cols;
  for (int c = 0; c < channels; c++) {
    const T* rows = x + (int64_t(channel + c) * s.in_rows + top) * width;
    for (int i = 0; i < s.halo_rows; i++, packed += s.halo_cols * kLanes<T>) {
      const int64_t out = int64_t(p.row + i / s.row_stride) * kLanes<T>, place = out + int64_t(s.dy0 + i % s.row_stride) * s.across;
      const int64_t end = out_width - out + place < width ? out_width - out + place : width;  // of what an output reads
      for (int q = 0; q < s.halo_cols; q++)
        at(packed + q * kLanes<T>) = q >= from && q < to && place < end && place + kLanes<T> > 0 ? of_row(rows + q * width, place, end) : Vec<T>{};
    }
  }
}

// packed[strip][channel][halo row][halo col][V vectors] <- x, zero outside the map.
template <class T, int V>
void pack(T* packed, size_t strip_size, const Stencil& s, const T* x, int64_t lanes, int channel, int channels, const Place& p) {
  if (s.across) return pack_across(packed, s, x, channel, channels, p);
  constexpr int width = V * kLanes<T>;
  const int top = p.row * s.row_stride + s.dy0, left = p.col * s.col_stride + s.dx0;
  int from = left < 0 ? -left : 0, to = s.in_cols - left < s.halo_cols ? s.in_cols - left : s.halo_cols;
  if (from >= to) from = to = s.halo_cols;
  for (int c = 0; c < channels; c++)
    for (int r = 0; r < s.halo_rows; r++) {
      T* out = packed + (size_t)(c * s.halo_rows + r) * s.halo_cols * width;
      const int row = top + r;
      if (row < 0 || row >= s.in_rows) {
        clear<T, V>(out, strip_size, s.halo_cols, p);
        continue;
      }
      const int64_t pixel = ((int64_t)(channel + c) * s.in_rows + row) * s.in_cols + left;
      if (from > 0) clear<T, V>(out, strip_size, from, p);
      for (int q = from; q < to; q++) split<T, V>(out + q * width, strip_size, x + (pixel + q) * lanes + p.lane, p);
      if (to < s.halo_cols) clear<T, V>(out + to * width, strip_size, s.halo_cols - to, p);
    }
}

template <class T, int R, int C>
void pack_tiles_across(T* tiles, const Stencil& s, const T* map, int out, int outs, const Place& p) {
  for (int c = 0; c < outs; c++)
    for (int i = 0; i < R; i++)
      for (int j = 0; j < C; j++, tiles += kLanes<T>) {
        const bool exists = i < s.rows - p.row && j < s.cols - p.col;
        const Across from = exists ? output_across<T>(s, out + c, p, i, j) : Across{0, 0};
        at(tiles) = exists ? first_lanes(map + from.at, from.lanes) : Vec<T>{};
      }
}

// tiles[strip][out of block][R*C pixels][V vectors] <- a map like the stencil's output, zero where no pixel or lane exists.
template <class T, int R, int C, int V>
void pack_tiles(T* tiles, size_t strip_size, const Stencil& s, const T* map, int64_t lanes, int out, int outs, const Place& p) {
  if (s.across) return pack_tiles_across<T, R, C>(tiles, s, map, out, outs, p);
  for (int c = 0; c < outs; c++)
    for (int i = 0; i < R; i++)
      for (int j = 0; j < C; j++) {
        T* to = tiles + ((size_t)c * R * C + i * C + j) * V * kLanes<T>;
        if (i < s.rows - p.row && j < s.cols - p.col)
          split<T, V>(to, strip_size, map + output_at(s, lanes, out + c, p, i, j), p);
        else
          clear<T, V>(to, strip_size, 1, p);
      }
}

// packed[strip][channel][V vectors] <- rows[sample][features] from feature `channel` on: transposed on the way.
template <class T, int V>
void pack_rows(T* packed, size_t strip_size, const T* rows, int64_t features, int channel, int channels, const Place& p) {
  constexpr int size = kLanes<T>, width = V * size;
  for (int lane = 0; lane < p.strips * width; lane += size) {
    T* to = packed + lane / width * strip_size + lane % width;
    const T* from = rows + (p.lane + lane) * features + channel;
    const int there = p.lanes - lane < size ? p.lanes - lane : size;
    int c = 0;
    if (there == size)
      for (; c + size <= channels; c += size) transpose_block(from + c, features, to + (size_t)c * width, width);
    for (; c < channels; c++)
      for (int n = 0; n < size; n++) to[(size_t)c * width + n] = n < there ? from[n * features + c] : T(0);
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

// Pixels of a map.
struct Box {
  int top, left, bottom, right;
};

// What reading a box of some channels of maps will touch, spread over `visits`.
template <class T>
Ahead look_ahead(const T* maps, int map_rows, int map_cols, const Box& box, int channel, int channels, int64_t lanes, const Place& p, int64_t visits) {
  const int bottom = box.bottom < map_rows ? box.bottom : map_rows, right = box.right < map_cols ? box.right : map_cols;
  const int top = box.top < 0 ? 0 : box.top, left = box.left < 0 ? 0 : box.left;
  Ahead a;
  if (bottom <= top || right <= left || visits == 0) return a;
  const bool whole = p.lanes == lanes;  // pixels of a row are one run
  a.channel = reinterpret_cast<const char*>(maps + (((int64_t)channel * map_rows + top) * map_cols + left) * lanes + p.lane);
  a.channels = channels, a.rows = bottom - top, a.cols = whole ? 1 : right - left;
  a.col_pitch = lanes * (int64_t)sizeof(T), a.row_pitch = map_cols * a.col_pitch, a.channel_pitch = map_rows * a.row_pitch;
  a.run_bytes = (whole ? right - left : 1) * (int64_t)sizeof(T) * p.lanes;
  const int64_t lines = (a.run_bytes + kLine - 1) / kLine * a.cols * a.rows * channels;
  a.per_visit = int((lines + visits - 1) / visits);
  return a;
}

// The input of the tile at p, with its halo.
inline Box input_box(const Stencil& s, const Place& p) {
  const int top = p.row * s.row_stride + s.dy0, left = p.col * s.col_stride + s.dx0;
  return {top, left, top + s.halo_rows, left + s.halo_cols};
}

template <class T>
bool streamed(const Stencil& s, const T* y, int64_t lanes) {
  return streamed(y, lanes, (int64_t)s.out_channels * s.out_rows * s.out_cols);
}

// y <- sums[strip][out of block][R*C pixels][V vectors], where pixels and lanes exist.
template <class T, int R, int C, int V>
void unpack(const T* sums, size_t strip_size, const Stencil& s, T* y, int64_t lanes, int out, int outs, const Place& p) {
  constexpr int width = V * kLanes<T>;
  const int rows = s.rows - p.row < R ? s.rows - p.row : R, cols = s.cols - p.col < C ? s.cols - p.col : C;
  if (s.across) {
    for (int c = 0; c < outs; c++)
      for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) {
          const Across to = output_across<T>(s, out + c, p, i, j);
          put_first(y + to.at, at(sums + ((size_t)c * R * C + i * C + j) * width), to.lanes);
        }
    return;
  }
  const int whole = p.lanes / width, rest = p.lanes % width;
  const bool streams = streamed(s, y, lanes);
  for (int c = 0; c < outs; c++)
    for (int i = 0; i < rows; i++)
      for (int j = 0; j < cols; j++) {
        T* to = y + output_at(s, lanes, out + c, p, i, j);
        const T* from = sums + ((size_t)c * R * C + i * C + j) * width;
        for (int o = 0; o < whole; o++, to += width, from += strip_size)
          REGROW_UNROLL for (int v = 0; v < width; v += kLanes<T>) {
            store(to + v, at(from + v), streams);
          }
        int n = 0;
        for (; n + kLanes<T> <= rest; n += kLanes<T>) put(to + n, at(from + n));
        for (; n < rest; n++) to[n] = from[n];
      }
}

// rows[sample][features] from feature `out` on <- sums[strip][out of block][V vectors].
template <class T, int V>
void unpack_rows(const T* sums, size_t strip_size, T* rows, int64_t features, int out, int outs, const Place& p) {
  constexpr int size = kLanes<T>, width = V * size;
  for (int lane = 0; lane < p.lanes; lane += size) {
    const T* from = sums + lane / width * strip_size + lane % width;
    T* to = rows + (p.lane + lane) * features + out;
    const int there = p.lanes - lane < size ? p.lanes - lane : size;
    int c = 0;
    if (there == size)
      for (; c + size <= outs; c += size) transpose_block(from + (size_t)c * width, width, to + c, features);
    for (; c < outs; c++)
      for (int n = 0; n < there; n++) to[n * features + c] = from[(size_t)c * width + n];
  }
}
