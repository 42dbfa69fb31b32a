// Lanes as one value, through the compiler's vector extension: the same source serves every instruction set and precision.

#ifdef __clang__
#define REGROW_UNROLL _Pragma("unroll")
#else
#define REGROW_UNROLL _Pragma("GCC unroll 32")
#endif

constexpr int kVectorBytes = REGROW_TRAITS.vector_bytes;
constexpr int kLine = 64;  // bytes of a cache line

template <class T>
constexpr int kLanes = kVectorBytes / int(sizeof(T));  // samples in one vector

template <class T>
struct Simd;
template <>
struct Simd<float> {
  typedef float Vec __attribute__((vector_size(kVectorBytes), may_alias));
  typedef int32_t Integers __attribute__((vector_size(kVectorBytes), may_alias));
  typedef uint8_t Bytes __attribute__((vector_size(kVectorBytes / 4)));
};
template <>
struct Simd<double> {
  typedef double Vec __attribute__((vector_size(kVectorBytes), may_alias));
  typedef int64_t Integers __attribute__((vector_size(kVectorBytes), may_alias));
  typedef uint8_t Bytes __attribute__((vector_size(kVectorBytes / 8)));
};

template <class T>
using Vec = typename Simd<T>::Vec;

template <class T>
REGROW_INLINE const Vec<T>& at(const T* p) { return *reinterpret_cast<const Vec<T>*>(p); }
template <class T>
REGROW_INLINE Vec<T>& at(T* p) { return *reinterpret_cast<Vec<T>*>(p); }

// From and to any address. A copy, as clang forgets a typedef's alignment inside templates.
template <class V, class T>
REGROW_INLINE V copied(const T* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof(V));
  return v;
}
template <class T>
REGROW_INLINE Vec<T> loose(const T* from) { return copied<Vec<T>>(from); }
template <class T>
REGROW_INLINE void put(T* to, const Vec<T>& v) { __builtin_memcpy(to, &v, sizeof(v)); }

// The same number in every lane.
template <class T>
REGROW_INLINE Vec<T> broadcast(T value) { return value - Vec<T>{}; }

// Four numbers that follow each other, any of them in every lane.
template <class T>
struct Four {
#ifdef REGROW_AVX512
  __m512 numbers;  // four times: one load in place of four
  REGROW_INLINE explicit Four(const T* from) : numbers(_mm512_broadcast_f32x4(_mm_loadu_ps(from))) { __asm__("" : "+v"(numbers)); }  // now, not later
  template <int N>
  REGROW_INLINE Vec<T> everywhere() const { return (Vec<T>)_mm512_permute_ps(numbers, N * 0x55); }
#else
  const T* numbers;
  REGROW_INLINE explicit Four(const T* from) : numbers(from) {}
  template <int N>
  REGROW_INLINE Vec<T> everywhere() const { return broadcast<T>(numbers[N]); }
#endif
};

// Four units that follow each other, in one load.
struct FourUnits {
  uint64_t word;
  REGROW_INLINE explicit FourUnits(const uint16_t* from) {
    __builtin_memcpy(&word, from, sizeof word);
    __asm__("" : "+r"(word));  // now, not later
  }
  REGROW_INLINE size_t operator[](int n) const { return uint16_t(word >> n * 16); }
};

#ifdef REGROW_AVX2
// All bits of lanes [begin, end).
REGROW_INLINE __m256i between(int begin, int end) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_and_si256(_mm256_cmpgt_epi32(lane, _mm256_set1_epi32(begin - 1)), _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lane));
}
#elif defined(REGROW_AVX512)
REGROW_INLINE __mmask16 between(int begin, int end) { return (__mmask16)((1u << end) - (1u << begin)); }
#endif

// Lanes [begin, end), zeros elsewhere; reads nothing else.
template <class T>
REGROW_INLINE Vec<T> lanes_between(const T* from, int begin, int end) {
#ifdef REGROW_AVX512
  return (Vec<T>)_mm512_maskz_loadu_ps(between(begin, end), from);
#elif defined(REGROW_AVX2)
  return (Vec<T>)_mm256_maskload_ps(from, between(begin, end));
#else
  Vec<T> v{};
  for (int n = begin; n < end; n++) v[n] = from[n];
  return v;
#endif
}

// The first `count` lanes, zeros behind; reads nothing behind the last.
template <class T>
REGROW_INLINE Vec<T> first_lanes(const T* from, int count) { return count >= kLanes<T> ? loose(from) : lanes_between(from, 0, count); }

// Writes the first `count` lanes, and nothing behind.
template <class T>
REGROW_INLINE void put_first(T* to, const Vec<T>& v, int count) {
#ifdef REGROW_AVX512
  _mm512_mask_storeu_ps(to, between(0, count), (__m512)v);
#elif defined(REGROW_AVX2)
  _mm256_maskstore_ps(to, between(0, count), (__m256)v);
#else
  for (int n = 0; n < count; n++) to[n] = v[n];
#endif
}

// Writes past the caches where the instruction set can; `to` is aligned.
template <class T>
REGROW_INLINE void stream(T* to, const Vec<T>& v) {
#ifdef REGROW_AVX512
  _mm512_stream_ps(to, (__m512)v);
#elif defined(REGROW_AVX2)
  _mm256_stream_ps(to, (__m256)v);
#else
  at(to) = v;
#endif
}

constexpr int64_t kStreamBytes = 16 * 1024 * 1024;  // outputs that no cache would hold until they are read

// Whether `runs` of so many numbers each are so large, and whole cache lines: then they need not be read before they are written.
template <class T>
bool streamed(const T* y, int64_t run, int64_t runs) {
  const int64_t bytes = run * (int64_t)sizeof(T);
  return bytes % kLine == 0 && reinterpret_cast<uintptr_t>(y) % kLine == 0 && bytes * runs >= kStreamBytes;
}

template <class T>
REGROW_INLINE void store(T* to, const Vec<T>& v, bool streams) {
  if (streams)
    stream<T>(to, v);
  else
    put(to, v);
}

REGROW_INLINE void finish_streams() {
#if defined(REGROW_AVX512) || defined(REGROW_AVX2)
  _mm_sfence();
#endif
}

template <class T>
REGROW_INLINE T lane_sum(const Vec<T>& v) {
#ifdef REGROW_AVX512
  return _mm512_reduce_add_ps((__m512)v);
#elif defined(REGROW_AVX2)
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
  const __m128 two = _mm_hadd_ps(four, four);
  return _mm_cvtss_f32(_mm_hadd_ps(two, two));
#else
  T total = 0;
  for (int n = 0; n < kLanes<T>; n++) total += v[n];
  return total;
#endif
}

#ifdef REGROW_AVX512
REGROW_INLINE __m256 halves_added(const Vec<float>& v) {
  return _mm256_add_ps(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
}
#elif defined(REGROW_AVX2)
REGROW_INLINE __m256 halves_added(const Vec<float>& v) { return (__m256)v; }
#endif

// sums[0 .. N) += the lane sums of N vectors.
template <class T, int N>
REGROW_INLINE void add_lane_sums(T* sums, const Vec<T> (&v)[N]) {
#if defined(REGROW_AVX512) || defined(REGROW_AVX2)
  if constexpr (N == 4) {
    const __m256 low = _mm256_hadd_ps(halves_added(v[0]), halves_added(v[1])), high = _mm256_hadd_ps(halves_added(v[2]), halves_added(v[3]));
    const __m256 h = _mm256_hadd_ps(low, high);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    _mm_storeu_ps(sums, _mm_add_ps(_mm_loadu_ps(sums), four));
    return;
  }
#elif defined(REGROW_NEON)
  if constexpr (N == 4) {
    const float32x4_t low = vpaddq_f32((float32x4_t)v[0], (float32x4_t)v[1]), high = vpaddq_f32((float32x4_t)v[2], (float32x4_t)v[3]);
    vst1q_f32(sums, vaddq_f32(vld1q_f32(sums), vpaddq_f32(low, high)));
    return;
  }
#endif
  for (int i = 0; i < N; i++) sums[i] += lane_sum<T>(v[i]);
}

// As many bytes as lanes, as numbers.
template <class T>
REGROW_INLINE Vec<T> widened(const uint8_t* x) {
#ifdef REGROW_AVX512
  return (Vec<T>)_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)x)));
#elif defined(REGROW_AVX2)
  return (Vec<T>)_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)x)));
#else
  Vec<T> wide;
  for (int i = 0; i < kLanes<T>; i++) wide[i] = T(x[i]);
  return wide;
#endif
}

// Keeps a product from being fused with the sum that follows.
template <class T>
REGROW_INLINE void settle(Vec<T>& product) {
#if defined(REGROW_AVX512) || defined(REGROW_AVX2)
  __asm__("" : "+v"(product));
#elif defined(REGROW_NEON)
  __asm__("" : "+w"(product));
#else
  __asm__("" : "+m"(product));
#endif
}

// Keeps a value that is used twice in a register: compilers prefer to load it twice.
template <class T>
REGROW_INLINE void hold(Vec<T>& value) {
#if defined(REGROW_AVX512) || defined(REGROW_AVX2)
  __asm__("" : "+v"(value));
#elif defined(REGROW_NEON)
  __asm__("" : "+w"(value));
#else
  (void)value;
#endif
}

// As many rows as lanes, each of as many numbers: columns become rows. `pitch` is the distance between rows.
template <class T>
REGROW_INLINE void transpose_block(const T* x, int64_t x_pitch, T* y, int64_t y_pitch) {
  constexpr int size = kLanes<T>;
#ifdef REGROW_AVX2
  __m256 r[8], t[8];
  REGROW_UNROLL for (int i = 0; i < 8; i++) r[i] = _mm256_loadu_ps(x + i * x_pitch);
  REGROW_UNROLL for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  REGROW_UNROLL for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
  }
  REGROW_UNROLL for (int i = 0; i < 4; i++) {
    _mm256_storeu_ps(y + i * y_pitch, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps(y + (i + 4) * y_pitch, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
#elif defined(REGROW_AVX512)
  __m512 r[16], t[16];
  REGROW_UNROLL for (int i = 0; i < 16; i++) r[i] = _mm512_loadu_ps(x + i * x_pitch);
  REGROW_UNROLL for (int i = 0; i < 16; i += 2) t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]), t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  REGROW_UNROLL for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44), r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xEE);
    r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44), r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
  }
  REGROW_UNROLL for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88), t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xDD);
    t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88), t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xDD);
  }
  REGROW_UNROLL for (int i = 0; i < 8; i++) {
    _mm512_storeu_ps(y + i * y_pitch, _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88));
    _mm512_storeu_ps(y + (i + 8) * y_pitch, _mm512_shuffle_f32x4(t[i], t[i + 8], 0xDD));
  }
#else
  for (int i = 0; i < size; i++)
    for (int j = 0; j < size; j++) y[j * y_pitch + i] = x[i * x_pitch + j];
#endif
  (void)size;
}
