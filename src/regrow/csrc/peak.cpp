// The machine's arithmetic peak, for benchmarks: multiply-adds that never leave registers, on `threads` threads at once.
// Twelve independent accumulators keep two multiply-add units of latency four or five busy; operands stay in registers.
#include <chrono>
#include <cstdint>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace regrow {
namespace {

typedef float Vector __attribute__((vector_size(32)));
constexpr int kLanes = 8, kAccumulators = 12;

inline __attribute__((always_inline)) float multiply_add(int64_t rounds, float seed) {
  Vector sum[kAccumulators], a, b;
  for (int lane = 0; lane < kLanes; lane++) a[lane] = 0.999f + seed, b[lane] = seed;
  for (int i = 0; i < kAccumulators; i++) sum[i] = a * static_cast<float>(i + 1);
  for (int64_t round = 0; round < rounds; round++) {
#pragma GCC unroll 12
    for (int i = 0; i < kAccumulators; i++) sum[i] = sum[i] * a + b;
  }
  float total = 0;
  for (const Vector& part : sum)
    for (int lane = 0; lane < kLanes; lane++) total += part[lane];
  return total;
}

float generic_loop(int64_t rounds, float seed) { return multiply_add(rounds, seed); }

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) float avx2_loop(int64_t rounds, float seed) { return multiply_add(rounds, seed); }
#endif

using Loop = float (*)(int64_t, float);

Loop fastest_loop() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2_loop;
#endif
  return generic_loop;
}

// In billions of floating-point operations per second.
double fma_peak(int64_t rounds, int threads) {
  const Loop loop = fastest_loop();
  // Read at run time, so that no compiler can compute the result.
  volatile float seed = 1e-3f;
  volatile float kept = loop(rounds / 8 + 1, seed);
  double total = kept * 0.0;
  const auto begin = std::chrono::steady_clock::now();
#pragma omp parallel for num_threads(threads) reduction(+ : total) schedule(static, 1)
  for (int part = 0; part < threads; part++) total += loop(rounds, seed);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  kept = static_cast<float>(total);
  return 2e-9 * kLanes * kAccumulators * static_cast<double>(rounds) * threads / seconds;
}

}  // namespace
}  // namespace regrow

extern "C" __attribute__((visibility("default"))) double regrow_fma_peak(int64_t rounds, int threads) {
  return rounds < 1 || threads < 1 ? 0.0 : regrow::fma_peak(rounds, threads);
}
