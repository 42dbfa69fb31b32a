// Max pooling on [channels][rows][cols][lanes] tensors, a vector of lanes at a time.
//
// `winner` keeps the window position (row-major) of each maximum for the backward pass, or kNobody where a ReLU lets nothing through.
// NaN wins, as in torch. A thread takes whole channels.

constexpr int kMostTaps = 255;
constexpr uint8_t kNobody = 255;  // taps are smaller

// As many integers as lanes, each as wide as T: one comparison chooses values and taps.
template <class T>
using Taps = typename Simd<T>::Integers;
template <class T>
using Bytes = typename Simd<T>::Bytes;

// Calls all(n) for a vector of lanes until all are done, the last time with some of them again, or one(n) per lane where they fill none.
template <class T, class All, class One>
REGROW_INLINE void over_lanes(int64_t lanes, All all, One one) {
  int64_t n = 0;
  for (; n + kLanes<T> <= lanes; n += kLanes<T>) all(n);
  if (n == lanes) return;
  if (lanes >= kLanes<T>) return all(lanes - kLanes<T>);
  for (; n < lanes; n++) one(n);
}

// The taps of a window that fall inside the map, and where they read from its first position on. Callers see to it that every window has
// one, and at most kMostTaps.
struct Window {
  int count = 0;
  int64_t at[kMostTaps];
  uint8_t tap[kMostTaps];

  // The window whose first position is (row, col), perhaps outside.
  Window(const Pool& s, int row, int col, int64_t lanes) {
    for (int ky = 0; ky < s.kernel_rows; ky++)
      for (int kx = 0; kx < s.kernel_cols; kx++) {
        const int y = ky * s.dilation_rows, x = kx * s.dilation_cols;
        if (row + y < 0 || row + y >= s.in_rows || col + x < 0 || col + x >= s.in_cols) continue;
        at[count] = ((int64_t)y * s.in_cols + x) * lanes;
        tap[count++] = uint8_t(ky * s.kernel_cols + kx);
      }
  }
};

// Calls visit(window, where it begins in a channel's input, where in its output) for every window. Most lie inside and are the same.
template <class Visit>
REGROW_INLINE void for_each_window(const Pool& s, int64_t lanes, Visit visit) {
  const int last_row = s.in_rows - 1 - (s.kernel_rows - 1) * s.dilation_rows, last_col = s.in_cols - 1 - (s.kernel_cols - 1) * s.dilation_cols;
  const Window whole(s, 0, 0, lanes);  // used only where such a window exists
  for (int i = 0; i < s.out_rows; i++)
    for (int j = 0; j < s.out_cols; j++) {
      const int row = i * s.stride_rows - s.pad_rows, col = j * s.stride_cols - s.pad_cols;
      const int64_t in = ((int64_t)row * s.in_cols + col) * lanes, out = ((int64_t)i * s.out_cols + j) * lanes;
      const bool inside = row >= 0 && row <= last_row && col >= 0 && col <= last_col;
      inside ? visit(whole, in, out) : visit(Window(s, row, col, lanes), in, out);
    }
}

template <class T>
void max_pool(const Pool& s, const T* x, T* y, uint8_t* winner, int64_t lanes, int part, int parts) {
  const Range mine = share(s.channels, part, parts);
  const int64_t in_size = (int64_t)s.in_rows * s.in_cols * lanes, out_size = (int64_t)s.out_rows * s.out_cols * lanes;
  for (int64_t c = mine.begin; c < mine.end; c++)
    for_each_window(s, lanes, [&](const Window& w, int64_t in, int64_t out) {
      const T* from = x + c * in_size;
      T* best = y + c * out_size + out;
      uint8_t* where = winner + c * out_size + out;
      over_lanes<T>(
          lanes,
          [&](int64_t n) {
            Vec<T> most = loose(from + (in + w.at[0] + n));
            Taps<T> tap = Taps<T>{} + w.tap[0];
            for (int t = 1; t < w.count; t++) {
              const Vec<T> next = loose(from + (in + w.at[t] + n));
              const Taps<T> better = ~(next <= most) & (most == most);
              most = better ? next : most;
              tap = better ? Taps<T>{} + w.tap[t] : tap;
            }
            if (s.rectified) {
              const Taps<T> dead = most <= Vec<T>{};
              most = dead ? Vec<T>{} : most;
              tap = dead ? Taps<T>{} + kNobody : tap;
            }
            put(best + n, most);
            const Bytes<T> narrow = __builtin_convertvector(tap, Bytes<T>);
            __builtin_memcpy(where + n, &narrow, sizeof(narrow));
          },
          [&](int64_t n) {
            best[n] = from[in + w.at[0] + n], where[n] = w.tap[0];
            for (int t = 1; t < w.count; t++) {
              const T next = from[in + w.at[t] + n];
              if (!(next <= best[n]) && best[n] == best[n]) best[n] = next, where[n] = w.tap[t];
            }
            if (s.rectified && best[n] <= 0) best[n] = 0, where[n] = kNobody;
          });
    });
}

// Do the windows tile the map? Then every input belongs to one of them.
inline bool tiles_map(const Pool& s) {
  const bool rows = s.kernel_rows == s.stride_rows && s.pad_rows == 0 && s.dilation_rows == 1 && s.in_rows == s.out_rows * s.stride_rows;
  const bool cols = s.kernel_cols == s.stride_cols && s.pad_cols == 0 && s.dilation_cols == 1 && s.in_cols == s.out_cols * s.stride_cols;
  return rows && cols;
}

template <class T>
void max_pool_backward(const Pool& s, const T* g, const uint8_t* winner, T* dx, int64_t lanes, int part, int parts) {
  const Range mine = share(s.channels, part, parts);
  const int64_t in_size = (int64_t)s.in_rows * s.in_cols * lanes, out_size = (int64_t)s.out_rows * s.out_cols * lanes;
  const bool tiles = tiles_map(s), streams = streamed(dx, lanes, in_size / lanes * s.channels);
  for (int64_t c = mine.begin; c < mine.end; c++) {
    if (!tiles)
      for (int64_t i = 0; i < in_size; i++) dx[c * in_size + i] = 0;
    for_each_window(s, lanes, [&](const Window& w, int64_t in, int64_t out) {
      T* to = dx + c * in_size;
      const T* grad = g + c * out_size + out;
      const uint8_t* where = winner + c * out_size + out;
      if (!tiles) {
        for (int t = 0; t < w.count; t++)
          for (int64_t n = 0; n < lanes; n++) to[in + w.at[t] + n] += where[n] == w.tap[t] ? grad[n] : T(0);
        return;
      }
      over_lanes<T>(
          lanes,
          [&](int64_t n) {
            const Vec<T> value = loose(grad + n);
            const Taps<T> tap = __builtin_convertvector(copied<Bytes<T>>(where + n), Taps<T>);
            for (int t = 0; t < w.count; t++) store(to + (in + w.at[t] + n), (Vec<T>)(tap == Taps<T>{} + w.tap[t] ? value : Vec<T>{}), streams);
          },
          [&](int64_t n) {
            for (int t = 0; t < w.count; t++) to[in + w.at[t] + n] = where[n] == w.tap[t] ? grad[n] : T(0);
          });
    });
  }
  finish_streams();
}
