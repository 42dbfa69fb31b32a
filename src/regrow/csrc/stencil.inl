// Forward and weight-gradient kernels of a sparse stencil (see plan.h). Included once per instruction set.
//
// A tile is R x C output pixels x V vectors of lanes of one output channel: R*C*V accumulators in registers. Every entry is one broadcast
// and R*C*V multiply-adds out of L1 (see walk.inl). Partial sums wait in `sums` (L2) for the next block of input channels.

#include "walk.inl"

// The part of an octet's tile that a visit two further on will use.
template <class T, int P>
REGROW_INLINE void fetch_tile(const T* tile, const Visit* visit) {
  const T* next = tile + (size_t)visit[kVisitPadding].slot * P * kLanes;
  REGROW_UNROLL for (int t = 0; t < P; t += kLine / int(kLanes * sizeof(T))) __builtin_prefetch(next + t * kLanes);
}

// Where the tile's pixels lie in the packed input, from an entry's unit on.
template <int V, int S>
struct Shape {
  int64_t row_pitch, col_pitch;
  explicit Shape(const Stencil& s) : row_pitch(s.row_stride * s.halo_cols * V * kLanes), col_pitch((S ? S : s.col_stride) * V * kLanes) {}
  REGROW_INLINE int64_t at(int row, int col) const { return row * row_pitch + col * (S ? S * V * kLanes : col_pitch); }
};

// ---- forward ----

template <class T, int R, int C, int V, int S>
struct ForwardTiles {
  static constexpr int P = R * C * V;
  const Stencil& s;
  const T *values, *bias;
  T* y;
  int64_t lanes;

  void begin(T*, size_t, int, int, const Place&) const {}

  const T* outputs_read() const { return nullptr; }

  void block(const Visit* visit, const Visit* last, const T* packed, T* sums, int out, Ahead& shared, Ahead&) const {
    // Local copies: the compiler must assume that storing sums changes whatever else is in memory.
    Ahead ahead = shared;
    const Shape<V, S> shape(s);
    const uint32_t* const unit = s.unit.data();
    const T *const value = values, *const biases = bias;
    const int pixels_per_bias = s.pixels_per_bias;
    for (; visit < last; visit++) {
      ahead.fetch();
      fetch_tile<T, P>(sums, visit);
      T* mine = sums + (size_t)visit->slot * P * kLanes;
      Vec<T> sum[P];
      if (visit->first) {
        const Vec<T> start = (biases ? biases[(out + visit->slot) / pixels_per_bias] : T(0)) - Vec<T>{};
        REGROW_UNROLL for (int t = 0; t < P; t++) sum[t] = start;
      } else {
        REGROW_UNROLL for (int t = 0; t < P; t++) sum[t] = at(mine + t * kLanes);
      }
      accumulate(sum, shape, packed, unit + visit->begin, value + visit->begin, value + visit->end);
      REGROW_UNROLL for (int t = 0; t < P; t++) at(mine + t * kLanes) = sum[t];
    }
    shared = ahead;
  }

  // The inner loop: sum[pixel] += value_k * packed[unit_k + pixel].
  REGROW_INLINE static void accumulate(Vec<T> (&sum)[P], const Shape<V, S>& shape, const T* packed, const uint32_t* unit, const T* value,
                                       const T* end) {
    for (; value < end; value++, unit++) {
      const Vec<T> w = *value - Vec<T>{};
      const T* x = packed + (size_t)*unit * (V * kLanes);
      REGROW_UNROLL for (int i = 0; i < R; i++) {
        REGROW_UNROLL for (int j = 0; j < C; j++) {
          REGROW_UNROLL for (int v = 0; v < V; v++) sum[(i * C + j) * V + v] += w * at(x + shape.at(i, j) + v * kLanes);
        }
      }
    }
  }

  void end(const T* sums, size_t octet_size, int out, int outs, const Place& p) const {
    unpack<T, R, C, V>(sums, octet_size, s, y, lanes, out, outs, p);
  }
};

// ---- weight gradient: d value_k = sum over pixels and lanes of grad_out[pixel] * packed[unit_k + pixel] ----

template <class T>
REGROW_INLINE T lane_sum(const Vec<T>& v) {
#ifdef REGROW_AVX2
  if constexpr (sizeof(T) == 4) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
    const __m128 two = _mm_hadd_ps(four, four);
    return _mm_cvtss_f32(_mm_hadd_ps(two, two));
  }
#endif
  T total = 0;
  for (int n = 0; n < kLanes; n++) total += v[n];
  return total;
}

// sums[0 .. N) += the lane sums of N vectors.
template <class T, int N>
REGROW_INLINE void add_lane_sums(T* sums, const Vec<T> (&v)[N]) {
#ifdef REGROW_AVX2
  if constexpr (sizeof(T) == 4 && N == 4) {
    const __m256 h = _mm256_hadd_ps(_mm256_hadd_ps((__m256)v[0], (__m256)v[1]), _mm256_hadd_ps((__m256)v[2], (__m256)v[3]));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    _mm_storeu_ps((float*)sums, _mm_add_ps(_mm_loadu_ps((float*)sums), four));
    return;
  }
#endif
  for (int i = 0; i < N; i++) sums[i] += lane_sum<T>(v[i]);
}

template <class T, int R, int C, int V, int S>
struct GradientTiles {
  static constexpr int P = R * C * V;
  const Stencil& s;
  const T* grad_out;
  T* sums;
  int64_t lanes;

  // grads[octet][out of block][R*C pixels][V*8 lanes] <- grad_out, zero where no pixel or lane exists.
  void begin(T* grads, size_t octet_size, int out, int outs, const Place& p) const {
    for (int c = 0; c < outs; c++)
      for (int i = 0; i < R; i++)
        for (int j = 0; j < C; j++) {
          T* to = grads + ((size_t)c * R * C + i * C + j) * V * kLanes;
          if (p.row + i < s.rows && p.col + j < s.cols)
            split<T, V>(to, octet_size, grad_out + output_at(s, lanes, out + c, p, i, j), p);
          else
            clear<T, V>(to, octet_size, 1, p);
        }
  }

  const T* outputs_read() const { return grad_out; }

  void block(const Visit* visit, const Visit* last, const T* packed, const T* grads, int, Ahead& shared, Ahead& outputs) const {
    Ahead ahead = shared;
    const Shape<V, S> shape(s);
    const uint32_t* const unit = s.unit.data();
    T* const total = sums;
    for (; visit < last; visit++) {
      ahead.fetch();
      outputs.fetch();
      fetch_tile<T, P>(grads, visit);
      const T* mine = grads + (size_t)visit->slot * P * kLanes;
      Vec<T> g[P];
      REGROW_UNROLL for (int t = 0; t < P; t++) g[t] = at(mine + t * kLanes);
      uint32_t k = visit->begin;
      for (; k + 4 <= visit->end; k += 4) add_products<4>(g, shape, packed, unit + k, total + k);
      switch (visit->end - k) {
        case 1: add_products<1>(g, shape, packed, unit + k, total + k); break;
        case 2: add_products<2>(g, shape, packed, unit + k, total + k); break;
        case 3: add_products<3>(g, shape, packed, unit + k, total + k); break;
      }
    }
    shared = ahead;
  }

  // The inner loop: for N entries at once, sums[n] += sum over pixels and lanes of g[pixel] * packed[unit_n + pixel].
  template <int N>
  REGROW_INLINE static void add_products(const Vec<T> (&g)[P], const Shape<V, S>& shape, const T* packed, const uint32_t* unit, T* sums) {
    Vec<T> sum[N] = {};
    const T* x[N];
    REGROW_UNROLL for (int n = 0; n < N; n++) x[n] = packed + (size_t)unit[n] * (V * kLanes);
    REGROW_UNROLL for (int i = 0; i < R; i++) {
      REGROW_UNROLL for (int j = 0; j < C; j++) {
        REGROW_UNROLL for (int v = 0; v < V; v++) {
          REGROW_UNROLL for (int n = 0; n < N; n++) sum[n] += g[(i * C + j) * V + v] * at(x[n] + shape.at(i, j) + v * kLanes);
        }
      }
    }
    add_lane_sums<T, N>(sums, sum);
  }

  void end(const T*, size_t, int, int, const Place&) const {}
};

// ---- choice of the compiled tile ----

// Vectors of lanes per tile of a matrix: few idle lanes, work for every thread, and not many passes over the lists.
inline int vectors_for(const Stencil& s, int64_t lanes, int parts) {
  const int64_t vectors = (lanes + kLanes - 1) / kLanes;
  int best = 0;
  int64_t least = 0;
  for (const int v : {8, 7, 4, 2, 1, 13}) {
    if (v > 8 && v < vectors) continue;  // so many registers pay only where they hold the whole batch
    const int64_t items = (vectors + v - 1) / v * s.out_blocks(), cost = (items + parts - 1) / parts * (v + 2);
    if (!best || cost < least) best = v, least = cost;
  }
  return best;
}

// Calls body.run<R, C, V, S>() for the stencil's tile.
template <class Body>
void with_tile(const Stencil& s, const Body& body) {
  if (s.matrix) switch (vectors_for(s, body.lanes, body.parts)) {
      case 1: return body.template run<1, 1, 1, 1>();
      case 2: return body.template run<1, 1, 2, 1>();
      case 4: return body.template run<1, 1, 4, 1>();
      case 7: return body.template run<1, 1, 7, 1>();
      case 8: return body.template run<1, 1, 8, 1>();
      default: return body.template run<1, 1, 13, 1>();
    }
#define TILE(R, C)                                                 \
  if (s.tile.rows == R && s.tile.cols == C) {                      \
    if (s.col_stride == 1) return body.template run<R, C, 1, 1>(); \
    if (s.col_stride == 2) return body.template run<R, C, 1, 2>(); \
    return body.template run<R, C, 1, 0>();                        \
  }
#include "tiles.inc"
#undef TILE
}

template <class T>
struct Forward {
  const Stencil& s;
  const T *x, *values, *bias;
  T* y;
  int64_t lanes;
  int part, parts;
  template <int R, int C, int V, int S>
  void run() const {
    ForwardTiles<T, R, C, V, S> body{s, values, bias, y, lanes};
    walk<T, R, C, V>(s, x, lanes, part, parts, body);
    finish_streams();
  }
};

template <class T>
struct Gradient {
  const Stencil& s;
  const T *x, *grad_out;
  T* sums;
  int64_t lanes;
  int part, parts;
  template <int R, int C, int V, int S>
  void run() const {
    GradientTiles<T, R, C, V, S> body{s, grad_out, sums, lanes};
    walk<T, R, C, V>(s, x, lanes, part, parts, body);
  }
};

template <class T>
void forward(const Stencil& s, const T* x, const T* values, const T* bias, T* y, int64_t lanes, int part, int parts) {
  with_tile(s, Forward<T>{s, x, values, bias, y, lanes, part, parts});
}

template <class T>
void weight_gradient(const Stencil& s, const T* x, const T* grad_out, T* sums, int64_t lanes, int part, int parts) {
  with_tile(s, Gradient<T>{s, x, grad_out, sums, lanes, part, parts});
}
