// Double precision, for gradient checks, on any CPU.
#include "kernels.h"

#define REGROW_TABLE double_kernels
#define REGROW_PRECISION double
#define REGROW_TRAITS kGeneric
#define REGROW_TILES "tiles16.inc"
#include "table.inl"
namespace regrow {
const Kernels<double>* double_table() { return &double_kernels::table; }
}  // namespace regrow
