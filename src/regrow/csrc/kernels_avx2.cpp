// The same kernels compiled for AVX2 + FMA. Called only where the CPU has both (see api.cpp).
#include "kernels.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>
#define REGROW_AVX2 1
#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace regrow {
namespace avx2 {
#include "stencil.inl"
#include "glue.inl"
#include "pool.inl"
#include "images.inl"
#include "twister.inl"
#include "optimizer.inl"
constexpr Kernels<float> table = REGROW_KERNELS(float);
}  // namespace avx2
const Kernels<float>* avx2_kernels_f32() { return &avx2::table; }
}  // namespace regrow
#pragma GCC pop_options
#else
namespace regrow {
const Kernels<float>* avx2_kernels_f32() { return nullptr; }
}  // namespace regrow
#endif
