// NEON of 64-bit ARM: 4 lanes, 32 registers.
#include "kernels.h"

#ifdef __aarch64__
#include <arm_neon.h>
#define REGROW_NEON 1
#define REGROW_TABLE neon_kernels
#define REGROW_PRECISION float
#define REGROW_TRAITS kNeon
#define REGROW_TILES "tiles32.inc"
#include "table.inl"
namespace regrow {
const Kernels<float>* neon_table() { return &neon_kernels::table; }
}  // namespace regrow
#else
namespace regrow {
const Kernels<float>* neon_table() { return nullptr; }
}  // namespace regrow
#endif
