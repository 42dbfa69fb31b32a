// What stands between sparse layers, on [channels][rows][cols][lanes] tensors: batch norm (with ReLU), where a channel is one contiguous
// run of `size` values and a thread takes whole channels; transposing, ReLU, dropout and masking, where it takes a range.

constexpr int64_t kChunk = 4096;  // summed in single precision, then added up in double
constexpr int kPassed = 4;        // sums side by side: additions take some cycles

// total + the sum over [0, size) of term(i), a vector at a time; `term` gets the index.
template <class T, class VectorTerm, class ScalarTerm>
REGROW_INLINE double sum_over(int64_t size, VectorTerm vector_term, ScalarTerm scalar_term, double total = 0) {
  for (int64_t start = 0; start < size; start += kChunk) {
    const int64_t end = start + kChunk < size ? start + kChunk : size;
    Vec<T> a{}, b{}, c{}, d{};
    int64_t i = start;
    for (; i + 4 * kLanes<T> <= end; i += 4 * kLanes<T>) {
      a += vector_term(i);
      b += vector_term(i + kLanes<T>);
      c += vector_term(i + 2 * kLanes<T>);
      d += vector_term(i + 3 * kLanes<T>);
    }
    a = (a + b) + (c + d);
    for (int n = 0; n < kLanes<T>; n++) total += a[n];
    for (; i < end; i++) total += scalar_term(i);
  }
  return total;
}

// y[cols][rows] <- x[rows][cols] for some columns; consecutive rows of x and of y are so far apart.
template <class T>
void transpose_columns(const T* x, int64_t x_pitch, int64_t rows, Range columns, T* y, int64_t y_pitch) {
  constexpr int size = kLanes<T>;
  for (int64_t c = columns.begin; c < columns.end; c += size) {
    int64_t r = 0;
    if (c + size <= columns.end)
      for (; r + size <= rows; r += size) transpose_block(x + r * x_pitch + c, x_pitch, y + c * y_pitch + r, y_pitch);
    for (; r < rows; r++)
      for (int64_t j = c; j < c + size && j < columns.end; j++) y[j * y_pitch + r] = x[r * x_pitch + j];
  }
}

// y[cols][rows] <- x[rows][cols]
template <class T>
void transpose(const T* x, int64_t rows, int64_t cols, T* y, int part, int parts) {
  constexpr int size = kLanes<T>;
  const Range blocks = share((cols + size - 1) / size, part, parts);
  transpose_columns(x, cols, rows, {blocks.begin * size, blocks.end * size < cols ? blocks.end * size : cols}, y, rows);
}

// y[sample][pixel][channel] <- x[channel][pixel][sample]: torch's channels_last from CHWN. A thread takes whole pixels.
template <class T>
void channels_last(const T* x, int64_t channels, int64_t pixels, int64_t samples, T* y, int part, int parts) {
  const Range mine = share(pixels, part, parts);
  for (int64_t p = mine.begin; p < mine.end; p++)
    transpose_columns(x + p * samples, pixels * samples, channels, {0, samples}, y + p * channels, pixels * channels);
}

template <class T>
void channel_sums(const T* x, int64_t channels, int64_t size, T* sums, int part, int parts) {
  const Range mine = share(channels, part, parts);
  for (int64_t c = mine.begin; c < mine.end; c++) {
    const T* p = x + c * size;
    sums[c] = T(sum_over<T>(size, [&](int64_t i) -> Vec<T> { return loose(p + i); }, [&](int64_t i) { return p[i]; }));
  }
}

// sums[c] = the sum of column c of x[rows][cols]; the same bits as `channel_sums` of its transpose.
template <class T>
void column_sums(const T* x, int64_t rows, int64_t cols, T* sums, int part, int parts) {
  constexpr int size = kLanes<T>;
  static thread_local Scratch scratch;
  T* columns = scratch.get<T>(size * kChunk);
  const Range blocks = share((cols + size - 1) / size, part, parts);
  for (int64_t c = blocks.begin * size; c < blocks.end * size && c < cols; c += size) {
    const int64_t width = cols - c < size ? cols - c : size;
    double total[size] = {};
    for (int64_t start = 0; start < rows; start += kChunk) {
      const int64_t count = rows - start < kChunk ? rows - start : kChunk;
      transpose_columns(x + start * cols + c, cols, count, {0, width}, columns, count);
      for (int64_t j = 0; j < width; j++) {
        const T* p = columns + j * count;
        total[j] = sum_over<T>(count, [&](int64_t i) -> Vec<T> { return loose(p + i); }, [&](int64_t i) { return p[i]; }, total[j]);
      }
    }
    for (int64_t j = 0; j < width; j++) sums[c + j] = T(total[j]);
  }
}

template <class T>
void channel_statistics(const T* x, int64_t channels, int64_t size, T* mean, T* variance, int part, int parts) {
  const Range mine = share(channels, part, parts);
  for (int64_t c = mine.begin; c < mine.end; c++) {
    const T* p = x + c * size;
    const T centre = T(sum_over<T>(size, [&](int64_t i) -> Vec<T> { return loose(p + i); }, [&](int64_t i) { return p[i]; }) / double(size));
    const double squares = sum_over<T>(
        size,
        [&](int64_t i) -> Vec<T> {
          const Vec<T> d = loose(p + i) - centre;
          return d * d;
        },
        [&](int64_t i) { return (p[i] - centre) * (p[i] - centre); });
    mean[c] = centre;
    variance[c] = T(squares / double(size));
  }
}

// y = x * scale + shift, then ReLU if wanted (NaN stays NaN, as in torch).
template <class T>
void scale_shift(const T* x, const T* scale, const T* shift, T* y, int64_t channels, int64_t size, bool relu, int part, int parts) {
  const Range mine = share(channels, part, parts);
  const bool streams = streamed(y, size, channels);
  const Vec<T> zero{};
  for (int64_t c = mine.begin; c < mine.end; c++) {
    const T *p = x + c * size, a = scale[c], b = shift[c];
    T* q = y + c * size;
    int64_t i = 0;
    for (; i + kLanes<T> <= size; i += kLanes<T>) {
      const Vec<T> v = loose(p + i) * a + b;
      store(q + i, relu ? (Vec<T>)(v < zero ? zero : v) : v, streams);
    }
    for (; i < size; i++) {
      const T v = p[i] * a + b;
      q[i] = relu && v < 0 ? T(0) : v;
    }
  }
  finish_streams();
}

// x = 0 in place where the mask is.
template <class T>
void keep_present(T* x, const uint8_t* mask, Range mine) {
  for (int64_t i = mine.begin; i < mine.end; i++) x[i] = mask[i] ? x[i] : T(0);
}

// y = x * scale where kept, else 0: dropout, and its gradient.
template <class T>
void scale_kept(const T* x, const uint8_t* keep, T scale, T* y, Range mine) {
  for (int64_t i = mine.begin; i < mine.end; i++) y[i] = x[i] * (keep[i] ? scale : T(0));
}

// y = max(y, 0) in place; NaN stays NaN, as in torch.
template <class T>
void rectify(T* y, Range mine) {
  for (int64_t i = mine.begin; i < mine.end; i++) y[i] = y[i] < 0 ? T(0) : y[i];
}

// g = 0 in place where the ReLU's output y is not positive.
template <class T>
void rectify_gradient(const T* y, T* g, Range mine) {
  for (int64_t i = mine.begin; i < mine.end; i++) g[i] = y[i] <= 0 ? T(0) : g[i];
}

// Gradient of batch norm. `y` non-null: a ReLU followed, its gradient passes unless y <= 0 (so where y is NaN, as in torch). `training`:
// statistics depend on x.
template <class T>
void norm_backward(const T* x, const T* y, const T* g, const T* mean, const T* invstd, const T* weight, T* dx, T* dweight, T* dbias,
                   int64_t channels, int64_t size, bool training, int part, int parts) {
  const Range mine = share(channels, part, parts);
  const bool streams = streamed(dx, size, channels);
  for (int64_t c = mine.begin; c < mine.end; c++) {
    const T *xc = x + c * size, *yc = y ? y + c * size : nullptr, *gc = g + c * size;
    const T m = mean[c], r = invstd[c], w = weight ? weight[c] : T(1);
    const Vec<T> zero{};
    auto passed = [&](int64_t i) -> Vec<T> { return yc ? (Vec<T>)(loose(yc + i) <= zero ? zero : loose(gc + i)) : (Vec<T>)loose(gc + i); };
    auto passed_one = [&](int64_t i) { return yc && yc[i] <= 0 ? T(0) : gc[i]; };
    double sum = 0, dot = 0;
    for (int64_t start = 0; start < size; start += kChunk) {
      const int64_t end = start + kChunk < size ? start + kChunk : size;
      Vec<T> sums[kPassed] = {}, dots[kPassed] = {};
      int64_t i = start;
      for (; i + kPassed * kLanes<T> <= end; i += kPassed * kLanes<T>)
        REGROW_UNROLL for (int n = 0; n < kPassed; n++) {
          const Vec<T> there = passed(i + n * kLanes<T>);
          sums[n] += there;
          dots[n] += there * (loose(xc + i + n * kLanes<T>) - m);
        }
      for (int n = 1; n < kPassed; n++) sums[0] += sums[n], dots[0] += dots[n];
      for (int n = 0; n < kLanes<T>; n++) sum += sums[0][n], dot += dots[0][n];
      for (; i < end; i++) sum += passed_one(i), dot += passed_one(i) * (xc[i] - m);
    }
    if (dweight) dweight[c] = T(dot * r);
    if (dbias) dbias[c] = T(sum);
    if (!dx) continue;
    const T a = w * r, b = T(sum / double(size)), k = T(dot / double(size) * r * r);
    T* d = dx + c * size;
    // From the end on: what was read last is still in a cache.
    for (int64_t start = (size - 1) / kChunk * kChunk; start >= 0; start -= kChunk) {
      const int64_t end = start + kChunk < size ? start + kChunk : size;
      int64_t i = start;
      if (training) {
        for (; i + kLanes<T> <= end; i += kLanes<T>) store(d + i, (Vec<T>)((passed(i) - b - (loose(xc + i) - m) * k) * a), streams);
        for (; i < end; i++) d[i] = (passed_one(i) - b - (xc[i] - m) * k) * a;
      } else {  // x has no part in it: a NaN or infinity there must not reach the gradient
        for (; i + kLanes<T> <= end; i += kLanes<T>) store(d + i, (Vec<T>)(passed(i) * a), streams);
        for (; i < end; i++) d[i] = passed_one(i) * a;
      }
    }
  }
  finish_streams();
}
