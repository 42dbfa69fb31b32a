// AVX2 + FMA: 8 lanes, 16 registers.
// flags x86_64: -mavx2 -mfma
#include "kernels.h"

#ifdef __AVX2__
#include <immintrin.h>
#define REGROW_AVX2 1
#define REGROW_TABLE avx2_kernels
#define REGROW_PRECISION float
#define REGROW_TRAITS kAvx2
#define REGROW_TILES "tiles16.inc"
#include "table.inl"
namespace regrow {
const Kernels<float>* avx2_table() { return &avx2_kernels::table; }
}  // namespace regrow
#else
namespace regrow {
const Kernels<float>* avx2_table() { return nullptr; }
}  // namespace regrow
#endif
