// One table of kernels, compiled with the instructions that the source which includes this was given. That source names REGROW_TABLE (the
// table's name), REGROW_PRECISION (float or double), REGROW_TRAITS (its numbers) and REGROW_TILES (its register tiles).
//
// Nothing here may leave a function that another source could share: it would carry these instructions there. So kernels use nothing of
// the standard library, and everything is in the table's own namespace (the native tests look at the object files).

namespace regrow {
namespace REGROW_TABLE {
#include "simd.inl"
#include "stencil.inl"
#include "glue.inl"
#include "pool.inl"
#include "images.inl"
#include "twister.inl"
#include "optimizer.inl"
#include "peak.inl"
#include "program.inl"

constexpr Tile tiles[] = {
#define TILE(R, C) {R, C},
#define VECTORS(V)
#include REGROW_TILES
#undef TILE
#undef VECTORS
};
constexpr Traits traits = REGROW_TRAITS.with(tiles, sizeof tiles / sizeof tiles[0]);
constexpr Kernels<REGROW_PRECISION> table = {
    &traits,
#define KERNEL(NAME, ...) NAME<REGROW_PRECISION>,
#include "kernels.inc"
#undef KERNEL
};
}  // namespace REGROW_TABLE
}  // namespace regrow
