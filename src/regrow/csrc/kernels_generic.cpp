// Kernels for any CPU, in single precision and (for gradient checks) in double precision.
#include "kernels.h"

namespace regrow {
namespace generic {
#include "stencil.inl"
#include "glue.inl"
#include "pool.inl"
#include "images.inl"
#include "twister.inl"
#include "optimizer.inl"
template <class T>
constexpr Kernels<T> table = REGROW_KERNELS(T);
}  // namespace generic

const Kernels<float>& generic_kernels_f32() { return generic::table<float>; }
const Kernels<double>& generic_kernels_f64() { return generic::table<double>; }
}  // namespace regrow
