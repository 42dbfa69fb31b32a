// The arithmetic peak, for benchmarks: multiply-adds that never leave registers. Twelve independent accumulators keep two multiply-add
// units of latency four or five busy.

template <class T>
void multiply_add(int64_t rounds, T seed, T* total) {
  constexpr int accumulators = kPeakAccumulators;
  Vec<T> sum[accumulators], a, b;
  for (int lane = 0; lane < kLanes<T>; lane++) a[lane] = T(0.999) + seed, b[lane] = seed;
  REGROW_UNROLL for (int i = 0; i < accumulators; i++) sum[i] = a * T(i + 1);
  for (int64_t round = 0; round < rounds; round++) {
    REGROW_UNROLL for (int i = 0; i < accumulators; i++) sum[i] = sum[i] * a + b;
  }
  *total = 0;
  for (int i = 0; i < accumulators; i++) *total += lane_sum<T>(sum[i]);
}

// The same with one operand from memory, as sparse kernels have it: `vectors` of them in a row, again and again.
template <class T>
void multiply_add_from(const T* from, int64_t vectors, int64_t rounds, T* total) {
  constexpr int accumulators = kPeakAccumulators;
  Vec<T> sum[accumulators] = {};
  const Vec<T> scale = broadcast(T(0.5));
  for (int64_t round = 0; round < rounds; round++)
    for (int64_t v = 0; v + accumulators <= vectors; v += accumulators) {
      REGROW_UNROLL for (int i = 0; i < accumulators; i++) sum[i] += scale * at(from + (v + i) * kLanes<T>);
    }
  *total = 0;
  for (int i = 0; i < accumulators; i++) *total += lane_sum<T>(sum[i]);
}
