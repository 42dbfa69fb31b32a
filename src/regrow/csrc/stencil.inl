// Forward and weight-gradient kernels of a sparse stencil (see plan.h).
//
// A tile is R x C output pixels x V vectors of lanes of one output channel: R*C*V accumulators in registers. Every entry is one broadcast
// and R*C*V multiply-adds out of L1 (see walk.inl). Partial sums wait in `sums` (L2) for the next block of input channels.

#include "walk.inl"

constexpr int kMostVectors = REGROW_TRAITS.registers;
constexpr int kManyVectors = 8;  // more of a matrix tile than this are worth it only for a whole batch

// The part of a strip's tile that a visit two further on will use.
template <class T, int P>
REGROW_INLINE void fetch_tile(const T* tile, const Visit* visit) {
  const T* next = tile + (size_t)visit[kVisitPadding].slot * P * kLanes<T>;
  REGROW_UNROLL for (int t = 0; t < P; t += kLine / int(kLanes<T> * sizeof(T))) __builtin_prefetch(next + t * kLanes<T>);
}

template <class T, int V>
bool finite(const T* packed, int pixels) {
  Vec<T> zero{};
  for (int i = 0; i < pixels * V; i++) zero += at(packed + i * kLanes<T>) * T(0);
  return lane_sum<T>(zero) == 0;
}

// Where the tile's pixels lie in the packed input, from an entry's unit on.
template <class T, int V, int S>
struct Shape {
  int64_t row_pitch, col_pitch;
  explicit Shape(const Stencil& s) : row_pitch(s.row_stride * s.halo_cols * V * kLanes<T>), col_pitch((S ? S : s.col_stride) * V * kLanes<T>) {}
  REGROW_INLINE int64_t at(int row, int col) const { return row * row_pitch + col * (S ? S * V * kLanes<T> : col_pitch); }
};

// ---- forward ----

template <class T, int R, int C, int V, int S>
struct ForwardTiles {
  static constexpr int P = R * C * V, kTiles = 1;
  const Stencil& s;
  Order order;
  const T *values, *bias;
  T* y;
  int64_t lanes;

  void begin(T*, size_t, int, int, const Place&) const {}

  const T* outputs_read() const { return nullptr; }

  void block(const Visit* visit, const Visit* last, const T* packed, int, T* sums, int out, Ahead& shared, Ahead&) const {
    // Local copies: the compiler must assume that storing sums changes whatever else is in memory.
    Ahead ahead = shared;
    const Shape<T, V, S> shape(s);
    const uint16_t* const unit = s.unit;
    const T *const value = values, *const biases = bias;
    const int pixels_per_bias = s.pixels_per_bias;
    for (; visit < last; visit++) {
      ahead.fetch();
      fetch_tile<T, P>(sums, visit);
      T* mine = sums + (size_t)visit->slot * P * kLanes<T>;
      Vec<T> sum[P];
      if (visit->first) {
        const Vec<T> start = broadcast<T>(biases ? biases[(out + visit->slot) / pixels_per_bias] : T(0));
        REGROW_UNROLL for (int t = 0; t < P; t++) sum[t] = start;
      } else {
        REGROW_UNROLL for (int t = 0; t < P; t++) sum[t] = at(mine + t * kLanes<T>);
      }
      accumulate(sum, shape, packed, unit + visit->begin, value + visit->begin, value + visit->end());
      REGROW_UNROLL for (int t = 0; t < P; t++) at(mine + t * kLanes<T>) = sum[t];
    }
    shared = ahead;
  }

  // The inner loop: sum[pixel] += value_k * packed[unit_k + pixel]. Loads are what it waits for. So units and values come four at a time, and
  // before the multiply-adds of the four before them: behind those, their addresses would be known too late.
  REGROW_INLINE static void accumulate(Vec<T> (&sum)[P], const Shape<T, V, S>& shape, const T* packed, const uint16_t* unit, const T* value,
                                       const T* end) {
    FourUnits next_units(unit);
    Four<T> next_values(value);
    for (; value + 4 <= end; value += 4) {
      const FourUnits from = next_units;
      const Four<T> w = next_values;
      next_units = FourUnits(unit += 4), next_values = Four<T>(value + 4);
      add(sum, shape, packed, from[0], w.template everywhere<0>());
      add(sum, shape, packed, from[1], w.template everywhere<1>());
      add(sum, shape, packed, from[2], w.template everywhere<2>());
      add(sum, shape, packed, from[3], w.template everywhere<3>());
    }
    for (; value < end; value++, unit++) add(sum, shape, packed, *unit, broadcast<T>(*value));
  }

  REGROW_INLINE static void add(Vec<T> (&sum)[P], const Shape<T, V, S>& shape, const T* packed, size_t unit, const Vec<T>& w) {
    const T* x = packed + unit * (V * kLanes<T>);
    REGROW_UNROLL for (int i = 0; i < R; i++) {
      REGROW_UNROLL for (int j = 0; j < C; j++) {
        REGROW_UNROLL for (int v = 0; v < V; v++) sum[(i * C + j) * V + v] += w * at(x + shape.at(i, j) + v * kLanes<T>);
      }
    }
  }

  void end(const T* sums, size_t strip_size, int out, int outs, const Place& p) const {
    if (order == Order::rows)
      unpack_rows<T, V>(sums, strip_size, y, s.out_channels, out, outs, p);
    else
      unpack<T, R, C, V>(sums, strip_size, s, y, lanes, out, outs, p);
  }
};

// ---- weight gradient: d value_k = sum over pixels and lanes of grad_out[pixel] * packed[unit_k + pixel] ----

template <class T, int R, int C, int V, int S>
struct GradientTiles {
  static constexpr int P = R * C * V, kTiles = 1;
  const Stencil& s;
  Order order;
  const T* grad_out;
  T* sums;
  int64_t lanes;
  int rows_inside = R, cols_inside = C;  // pixels of the tile that exist

  // grads[strip][out of block][R*C pixels][V vectors] <- grad_out, zero where no pixel or lane exists.
  void begin(T* grads, size_t strip_size, int out, int outs, const Place& p) {
    rows_inside = s.rows - p.row < R ? s.rows - p.row : R, cols_inside = s.cols - p.col < C ? s.cols - p.col : C;
    if (order == Order::rows) return pack_rows<T, V>(grads, strip_size, grad_out, s.out_channels, out, outs, p);
    pack_tiles<T, R, C, V>(grads, strip_size, s, grad_out, lanes, out, outs, p);
  }

  const T* outputs_read() const { return grad_out; }

  void block(const Visit* visit, const Visit* last, const T* packed, int pixels, const T* grads, int, Ahead& shared, Ahead& outputs) const {
    if ((rows_inside < R || cols_inside < C) && !finite<T, V>(packed, pixels)) return add_inside(visit, last, packed, grads);
    Ahead ahead = shared;
    const Shape<T, V, S> shape(s);
    const uint16_t* const unit = s.unit;
    T* const total = sums;
    for (; visit < last; visit++) {
      ahead.fetch();
      outputs.fetch();
      fetch_tile<T, P>(grads, visit);
      const T* mine = grads + (size_t)visit->slot * P * kLanes<T>;
      Vec<T> g[P];
      REGROW_UNROLL for (int t = 0; t < P; t++) g[t] = at(mine + t * kLanes<T>);
      uint32_t k = visit->begin;
      const uint32_t end = visit->end();
      for (; k + 4 <= end; k += 4) add_products<4>(g, shape, packed, unit + k, total + k);
      switch (end - k) {
        case 1: add_products<1>(g, shape, packed, unit + k, total + k); break;
        case 2: add_products<2>(g, shape, packed, unit + k, total + k); break;
        case 3: add_products<3>(g, shape, packed, unit + k, total + k); break;
      }
    }
    shared = ahead;
  }

  // The inner loop: for N entries at once, sums[n] += sum over pixels and lanes of g[pixel] * packed[unit_n + pixel].
  template <int N>
  REGROW_INLINE static void add_products(const Vec<T> (&g)[P], const Shape<T, V, S>& shape, const T* packed, const uint16_t* unit, T* sums) {
    Vec<T> sum[N] = {};
    const T* x[N];
    REGROW_UNROLL for (int n = 0; n < N; n++) x[n] = packed + (size_t)unit[n] * (V * kLanes<T>);
    REGROW_UNROLL for (int i = 0; i < R; i++) {
      REGROW_UNROLL for (int j = 0; j < C; j++) {
        REGROW_UNROLL for (int v = 0; v < V; v++) {
          REGROW_UNROLL for (int n = 0; n < N; n++) sum[n] += g[(i * C + j) * V + v] * at(x[n] + shape.at(i, j) + v * kLanes<T>);
        }
      }
    }
    add_lane_sums<T, N>(sums, sum);
  }

  // The same where the tile hangs over the map and the input is not finite: zero gradients beyond the map would make NaN of it.
  void add_inside(const Visit* visit, const Visit* last, const T* packed, const T* grads) const {
    const Shape<T, V, S> shape(s);
    for (; visit < last; visit++)
      for (uint32_t k = visit->begin; k < visit->end(); k++) {
        const T *g = grads + (size_t)visit->slot * P * kLanes<T>, *x = packed + (size_t)s.unit[k] * (V * kLanes<T>);
        T total = 0;
        for (int i = 0; i < rows_inside; i++)
          for (int j = 0; j < cols_inside; j++)
            for (int n = 0; n < V * kLanes<T>; n++) total += g[(i * C + j) * V * kLanes<T> + n] * x[shape.at(i, j) + n];
        sums[k] += total;
      }
  }

  void end(const T*, size_t, int, int, const Place&) const {}
};

#include "both.inl"

// ---- choice of the compiled tile ----

// Vectors of lanes per tile of a matrix: few idle lanes, work for every thread, and not many passes over the lists.
template <class T>
int vectors_for(const Stencil& s, int64_t lanes, int parts, int most = kMostVectors) {
  const int64_t vectors = (lanes + kLanes<T> - 1) / kLanes<T>;
  int best = 0;
  int64_t least = 0;
  const auto consider = [&](int v) {
    if (v > most) return;
    if (v > kManyVectors && v < vectors) return;  // so many registers pay only where they hold the whole batch
    if (v > 1 && int64_t(s.in_block) * v * kVectorBytes > REGROW_TRAITS.cache_bytes / 2) return;  // large blocks: see plan.cpp
    const int64_t items = (vectors + v - 1) / v * s.out_blocks(), cost = (items + parts - 1) / parts * (v + 2);
    if (!best || cost < least) best = v, least = cost;
  };
#define TILE(R, C)
#define VECTORS(V) consider(V);
#include REGROW_TILES
#undef TILE
#undef VECTORS
  return best;
}

// Calls body.run<R, C, V, S>() for the stencil's tile; of a matrix with at most so many vectors.
template <class T, class Body>
void with_tile(const Stencil& s, const Body& body, int most = kMostVectors) {
  const int vectors = s.matrix ? vectors_for<T>(s, body.lanes, body.parts, most) : 0;
#define VECTORS(V) \
  if (vectors == V) return body.template run<1, 1, V, 1>();
#define TILE(R, C)                                                             \
  if (!s.matrix && s.tile.rows == R && s.tile.cols == C) {                     \
    if (s.col_stride == 1) return body.template run<R, C, 1, 1>();             \
    return body.template run<R, C, 1, 0>();                                    \
  }
#include REGROW_TILES
#undef TILE
#undef VECTORS
}

template <class T>
struct Forward {
  const Stencil& s;
  Order order;
  const T *x, *values, *bias;
  T* y;
  int64_t lanes;
  int part, parts;
  template <int R, int C, int V, int S>
  void run() const {
    ForwardTiles<T, R, C, V, S> body{s, order, values, bias, y, lanes};
    walk<T, R, C, V>(s, order, x, lanes, part, parts, body);
    finish_streams();
  }
};

template <class T>
struct Gradient {
  const Stencil& s;
  Order order;
  const T *x, *grad_out;
  T* sums;
  int64_t lanes;
  int part, parts;
  template <int R, int C, int V, int S>
  void run() const {
    GradientTiles<T, R, C, V, S> body{s, order, grad_out, sums, lanes};
    walk<T, R, C, V>(s, order, x, lanes, part, parts, body);
  }
};

// Tiles of at most kBothMost vectors: layer.cpp asks for no others.
template <class T>
struct Both {
  const Stencil& s;
  Order order;
  const T *x, *grad_out, *values;
  T *dx, *sums;
  int64_t lanes;
  int part, parts;
  template <int R, int C, int V, int S>
  void run() const {
    if constexpr (R * C * V <= kBothMost) {
      BothTiles<T, R, C, V, S> body{s, order, x, values, dx, sums, lanes};
      walk<T, R, C, V>(s, order, grad_out, lanes, part, parts, body);
      finish_streams();
    }
  }
};

template <class T>
void forward(const Stencil& s, Order order, const T* x, const T* values, const T* bias, T* y, int64_t lanes, int part, int parts) {
  with_tile<T>(s, Forward<T>{s, order, x, values, bias, y, lanes, part, parts});
}

template <class T>
void weight_gradient(const Stencil& s, Order order, const T* x, const T* grad_out, T* sums, int64_t lanes, int part, int parts) {
  with_tile<T>(s, Gradient<T>{s, order, x, grad_out, sums, lanes, part, parts});
}

template <class T>
void both_gradients(const Stencil& s, Order order, const T* x, const T* grad_out, const T* values, T* dx, T* sums, int64_t lanes, int part, int parts) {
  with_tile<T>(s, Both<T>{s, order, x, grad_out, values, dx, sums, lanes, part, parts}, kBothMost);
}
