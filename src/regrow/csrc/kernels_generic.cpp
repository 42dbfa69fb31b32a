// Any CPU: four lanes, which every vector unit has; 16 registers.
#include "kernels.h"

#define REGROW_TABLE generic_kernels
#define REGROW_PRECISION float
#define REGROW_TRAITS kGeneric
#define REGROW_TILES "tiles16.inc"
#include "table.inl"
namespace regrow {
const Kernels<float>* generic_table() { return &generic_kernels::table; }
}  // namespace regrow
