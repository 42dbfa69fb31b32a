// Both gradients in one walk of the input gradient's lists. Included by stencil.inl.
//
// "Outputs" are the layer's inputs i, entries its weights to outputs o: dx[i] += w * g[o], and dw = <x[i], g[o]>. A visit holds a tile of x
// and the sums of dx there in registers; every vector of g is packed once and loaded once for both.

constexpr int kBothMost = both_vectors(REGROW_TRAITS);

template <class T, int R, int C, int V, int S>
struct BothTiles {
  static constexpr int P = R * C * V, kTiles = 2;  // x, dx
  const Stencil& s;
  Order order;
  const T *x, *values;
  T *dx, *sums;
  int64_t lanes;
  int rows_inside = R, cols_inside = C;  // pixels of the tile that exist

  size_t second_tile() const { return (size_t)s.out_block * P * kLanes<T> + kLine / sizeof(T); }

  void begin(T* tile, size_t strip_size, int out, int outs, const Place& p) {
    rows_inside = s.rows - p.row < R ? s.rows - p.row : R, cols_inside = s.cols - p.col < C ? s.cols - p.col : C;
    if (order == Order::rows) return pack_rows<T, V>(tile, strip_size, x, s.out_channels, out, outs, p);
    pack_tiles<T, R, C, V>(tile, strip_size, s, x, lanes, out, outs, p);
  }

  const T* outputs_read() const { return s.row_step == 1 && s.col_step == 1 ? x : nullptr; }

  void block(const Visit* visit, const Visit* last, const T* packed, int pixels, T* tile, int, Ahead& shared, Ahead& outputs) const {
    if ((rows_inside < R || cols_inside < C) && !finite<T, V>(packed, pixels)) return add_inside(visit, last, packed, tile);
    Ahead ahead = shared;
    const Shape<T, V, S> shape(s);
    const uint16_t* const unit = s.unit;
    const T* const value = values;
    T *const total = sums, *const out = tile + second_tile();
    for (; visit < last; visit++) {
      ahead.fetch();
      outputs.fetch();
      fetch_tile<T, P>(tile, visit);
      fetch_tile<T, P>(out, visit);
      const T* from = tile + (size_t)visit->slot * P * kLanes<T>;
      T* to = out + (size_t)visit->slot * P * kLanes<T>;
      Vec<T> mine[P], sum[P];
      REGROW_UNROLL for (int t = 0; t < P; t++) mine[t] = at(from + t * kLanes<T>);
      REGROW_UNROLL for (int t = 0; t < P; t++) sum[t] = visit->first ? Vec<T>{} : at(to + t * kLanes<T>);
      uint32_t k = visit->begin;
      const uint32_t end = visit->end();
      for (; k + kBothAtOnce <= end; k += kBothAtOnce) add<kBothAtOnce>(sum, mine, shape, packed, unit + k, value + k, total + k);
      switch (end - k) {
        case 1: add<1>(sum, mine, shape, packed, unit + k, value + k, total + k); break;
        case 2: add<2>(sum, mine, shape, packed, unit + k, value + k, total + k); break;
        case 3: add<3>(sum, mine, shape, packed, unit + k, value + k, total + k); break;
      }
      REGROW_UNROLL for (int t = 0; t < P; t++) at(to + t * kLanes<T>) = sum[t];
    }
    shared = ahead;
  }

  // The inner loop, for N entries: dx += value_n * g_n, total[n] += <x, g_n>.
  template <int N>
  REGROW_INLINE static void add(Vec<T> (&sum)[P], const Vec<T> (&mine)[P], const Shape<T, V, S>& shape, const T* packed, const uint16_t* unit,
                                const T* value, T* total) {
    Vec<T> product[N] = {};
    REGROW_UNROLL for (int n = 0; n < N; n++) {
      const Vec<T> w = broadcast<T>(value[n]);
      const T* from = packed + (size_t)unit[n] * (V * kLanes<T>);
      REGROW_UNROLL for (int i = 0; i < R; i++) {
        REGROW_UNROLL for (int j = 0; j < C; j++) {
          REGROW_UNROLL for (int v = 0; v < V; v++) {
            const int t = (i * C + j) * V + v;
            Vec<T> g = at(from + shape.at(i, j) + v * kLanes<T>);
            hold<T>(g);
            product[n] += mine[t] * g;
            sum[t] += w * g;
          }
        }
      }
    }
    add_lane_sums<T, N>(total, product);
  }

  // The same where the tile hangs over the map and gradients are not finite: zeros of x beyond the map would make NaN of them.
  void add_inside(const Visit* visit, const Visit* last, const T* packed, T* tile) const {
    constexpr int width = V * kLanes<T>;
    const Shape<T, V, S> shape(s);
    for (; visit < last; visit++) {
      const T* mine = tile + (size_t)visit->slot * P * kLanes<T>;
      T* to = tile + second_tile() + (size_t)visit->slot * P * kLanes<T>;
      if (visit->first)
        for (int n = 0; n < R * C * width; n++) to[n] = 0;
      for (uint32_t k = visit->begin; k < visit->end(); k++) {
        const T* g = packed + (size_t)s.unit[k] * width;
        T total = 0;
        for (int i = 0; i < rows_inside; i++)
          for (int j = 0; j < cols_inside; j++)
            for (int n = 0, at = (i * C + j) * width; n < width; n++, at++) {
              to[at] += values[k] * g[shape.at(i, j) + n];
              total += mine[at] * g[shape.at(i, j) + n];
            }
        sums[k] += total;
      }
    }
  }

  void end(const T* tile, size_t strip_size, int out, int outs, const Place& p) const {
    const T* from = tile + second_tile();
    if (order == Order::rows)
      unpack_rows<T, V>(from, strip_size, dx, s.out_channels, out, outs, p);
    else
      unpack<T, R, C, V>(from, strip_size, s, dx, lanes, out, outs, p);
  }
};
