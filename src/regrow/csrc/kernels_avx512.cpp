// AVX-512: 16 lanes, 32 registers. (gcc 12 warns of values in its own headers.)
// flags x86_64: -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -Wno-unknown-warning-option -Wno-uninitialized -Wno-maybe-uninitialized
#include "kernels.h"

#ifdef __AVX512F__
#include <immintrin.h>
#define REGROW_AVX512 1
#define REGROW_TABLE avx512_kernels
#define REGROW_PRECISION float
#define REGROW_TRAITS kAvx512
#define REGROW_TILES "tiles32.inc"
#include "table.inl"
namespace regrow {
const Kernels<float>* avx512_table() { return &avx512_kernels::table; }
}  // namespace regrow
#else
namespace regrow {
const Kernels<float>* avx512_table() { return nullptr; }
}  // namespace regrow
#endif
