// Kernels for any CPU, in single precision and (for gradient checks) in double precision.
#include "kernels.h"

namespace regrow {
namespace generic {
#include "stencil.inl"
#include "glue.inl"
#include "images.inl"
#include "twister.inl"
#include "optimizer.inl"
template <class T>
constexpr Kernels<T> table{forward<T>, weight_gradient<T>, transpose<T>, channel_sums<T>, channel_statistics<T>, scale_shift<T>,
                       load_images<T>, bernoulli, scale_kept<T>, keep_present<T>, rectify<T>, rectify_gradient<T>, norm_backward<T>, max_pool<T>, max_pool_backward<T>, sgd_step<T>, adamw_step<T>};
}  // namespace generic

const Kernels<float>& generic_kernels_f32() { return generic::table<float>; }
const Kernels<double>& generic_kernels_f64() { return generic::table<double>; }
}  // namespace regrow
