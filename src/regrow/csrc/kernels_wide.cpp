// The 16-lane kernels without AVX-512 instructions: slow, but their logic can be tested on every machine.
#include "kernels.h"

#define REGROW_TABLE wide_kernels
#define REGROW_PRECISION float
#define REGROW_TRAITS kWide
#define REGROW_TILES "tiles32.inc"
#include "table.inl"
namespace regrow {
const Kernels<float>* wide_table() { return &wide_kernels::table; }
}  // namespace regrow
