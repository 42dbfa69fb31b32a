// The machine's arithmetic peak, for benchmarks.
#pragma once
#include <cstdint>

namespace regrow {

// Floating-point operations per second, in billions, of multiply-adds that never leave registers, on `threads` threads at once.
double fma_peak(int64_t rounds, int threads);

}  // namespace regrow
