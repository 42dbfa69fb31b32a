// Both gradients of a matrix in one walk of its transposed lists. Included by stencil.inl.
//
// "Outputs" are the layer's inputs i, entries its weights to outputs o: dx[i] += w * g[o], and dw = <x[i], g[o]>. A visit holds x[i] and the
// sums of dx[i] in registers; every g[o] is loaded once for both, packed once for both.

constexpr int kBothAtOnce = 4;                                                 // entries whose lane sums are taken together
constexpr int kBothVectors = (REGROW_TRAITS.registers - kBothAtOnce - 2) / 2;  // of x, of dx: beside those sums, a weight and g[o]

template <class T, int V>
struct BothTiles {
  static constexpr int kTiles = 2;  // x, dx
  static constexpr int width = V * kLanes<T>;
  const Stencil& s;
  Order order;
  const T *x, *values;
  T *dx, *sums;
  int64_t lanes;

  size_t second_tile() const { return (size_t)s.out_block * width + kLine / sizeof(T); }

  void begin(T* tile, size_t strip_size, int out, int outs, const Place& p) const {
    if (order == Order::rows) return pack_rows<T, V>(tile, strip_size, x, s.out_channels, out, outs, p);
    for (int c = 0; c < outs; c++) split<T, V>(tile + (size_t)c * width, strip_size, x + output_at(s, lanes, out + c, p, 0, 0), p);
  }

  const T* outputs_read() const { return nullptr; }

  void block(const Visit* visit, const Visit* last, const T* packed, int, T* tile, int, Ahead&, Ahead&) const {
    const uint16_t* const unit = s.input;
    const T* const value = values;
    T *const total = sums, *const out = tile + second_tile();
    for (; visit < last; visit++) {
      fetch_tile<T, V>(tile, visit);
      fetch_tile<T, V>(out, visit);
      const T* from = tile + (size_t)visit->slot * width;
      T* to = out + (size_t)visit->slot * width;
      Vec<T> mine[V], sum[V];
      REGROW_UNROLL for (int v = 0; v < V; v++) mine[v] = at(from + v * kLanes<T>);
      REGROW_UNROLL for (int v = 0; v < V; v++) sum[v] = visit->first ? Vec<T>{} : at(to + v * kLanes<T>);
      uint32_t k = visit->begin;
      const uint32_t end = visit->end();
      for (; k + kBothAtOnce <= end; k += kBothAtOnce) add<kBothAtOnce>(sum, mine, packed, unit + k, value + k, total + k);
      switch (end - k) {
        case 1: add<1>(sum, mine, packed, unit + k, value + k, total + k); break;
        case 2: add<2>(sum, mine, packed, unit + k, value + k, total + k); break;
        case 3: add<3>(sum, mine, packed, unit + k, value + k, total + k); break;
      }
      REGROW_UNROLL for (int v = 0; v < V; v++) at(to + v * kLanes<T>) = sum[v];
    }
  }

  // The inner loop, for N entries: dx += value_n * g_n, total[n] += <x, g_n>.
  template <int N>
  REGROW_INLINE static void add(Vec<T> (&sum)[V], const Vec<T> (&mine)[V], const T* packed, const uint16_t* unit, const T* value, T* total) {
    Vec<T> product[N] = {};
    REGROW_UNROLL for (int n = 0; n < N; n++) {
      const Vec<T> w = broadcast<T>(value[n]);
      const T* from = packed + (size_t)unit[n] * width;
      REGROW_UNROLL for (int v = 0; v < V; v++) {
        Vec<T> g = at(from + v * kLanes<T>);
        hold<T>(g);
        product[n] += mine[v] * g;
        sum[v] += w * g;
      }
    }
    add_lane_sums<T, N>(total, product);
  }

  void end(const T* tile, size_t strip_size, int out, int outs, const Place& p) const {
    const T* from = tile + second_tile();
    if (order == Order::rows)
      unpack_rows<T, V>(from, strip_size, dx, s.out_channels, out, outs, p);
    else
      unpack<T, 1, 1, V>(from, strip_size, s, dx, lanes, out, outs, p);
  }
};

template <class T, int V>
void walk_both(const Stencil& s, Order order, const T* x, const T* grad_out, const T* values, T* dx, T* sums, int64_t lanes, int part, int parts) {
  if constexpr (V <= kBothVectors) {
    BothTiles<T, V> body{s, order, x, values, dx, sums, lanes};
    walk<T, 1, 1, V>(s, order, grad_out, lanes, part, parts, body);
    finish_streams();
  }
}
