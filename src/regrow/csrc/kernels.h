// The kernels of one instruction set and precision, as a table of functions. Each computes the part-th of `parts` shares of the work.
#pragma once
#include "glue.h"
#include "simd.h"
#include "twister.h"

namespace regrow {

template <class T>
struct Kernels {
  void (*forward)(const Stencil&, const T* x, const T* values, const T* bias, T* y, int64_t lanes, int part, int parts);
  void (*weight_gradient)(const Stencil&, const T* x, const T* grad_out, T* sums, int64_t lanes, int part, int parts);
  void (*transpose)(const T* x, int64_t rows, int64_t cols, T* y, int part, int parts);
  void (*channel_sums)(const T* x, int64_t channels, int64_t size, T* sums, int part, int parts);
  void (*channel_statistics)(const T* x, int64_t channels, int64_t size, T* mean, T* variance, int part, int parts);
  void (*scale_shift)(const T* x, const T* scale, const T* shift, T* y, int64_t channels, int64_t size, bool relu, int part, int parts);
  void (*load_images)(const ImageBatch<T>&, int part, int parts);
  void (*bernoulli)(Twister&, double p, uint8_t* keep, int64_t count);
  void (*scale_kept)(const T* x, const uint8_t* keep, T scale, T* y, Range mine);
  void (*keep_present)(T* x, const uint8_t* mask, Range mine);
  void (*rectify)(T* y, Range mine);
  void (*rectify_gradient)(const T* y, T* g, Range mine);
  void (*norm_backward)(const T* x, const T* y, const T* g, const T* mean, const T* invstd, const T* weight, T* dx, T* dweight, T* dbias,
                        int64_t channels, int64_t size, bool training, int part, int parts);
  void (*max_pool)(const Pool&, const T* x, T* y, uint8_t* winner, int64_t lanes, int part, int parts);
  void (*max_pool_backward)(const Pool&, const T* g, const uint8_t* winner, T* dx, int64_t lanes, int part, int parts);
  void (*sgd_step)(const SgdStep<T>&, Range mine);
  void (*adamw_step)(const AdamWStep<T>&, Range mine);
};

// The table of the kernels that are visible where it is written.
#define REGROW_KERNELS(T)                                                                                                            \
  Kernels<T> {                                                                                                                       \
    forward<T>, weight_gradient<T>, transpose<T>, channel_sums<T>, channel_statistics<T>, scale_shift<T>, load_images<T>, bernoulli, \
        scale_kept<T>, keep_present<T>, rectify<T>, rectify_gradient<T>, norm_backward<T>, max_pool<T>, max_pool_backward<T>,        \
        sgd_step<T>, adamw_step<T>                                                                                                   \
  }

const Kernels<float>& generic_kernels_f32();
const Kernels<double>& generic_kernels_f64();
const Kernels<float>* avx2_kernels_f32();  // null where the compiler cannot build them

}  // namespace regrow
