// The C interface that Python loads with ctypes. Arguments are checked in Python; errors here are status codes, never exceptions.
#include <cstdlib>
#include <cstring>
#include <exception>

#include "stack.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace regrow {
namespace {

constexpr int64_t kSerialBelow = 1 << 14;

void parallel_openmp(int parts, const std::function<void(int)>& body) {
  if (parts == 1) return body(0);
#ifdef _OPENMP
  std::exception_ptr failure;
#pragma omp parallel num_threads(parts)
  {
    for (int part = omp_get_thread_num(); part < parts; part += omp_get_num_threads()) try {
        body(part);
      } catch (...) {
#pragma omp critical
        failure = std::current_exception();
      }
  }
  if (failure) std::rethrow_exception(failure);
#else
  for (int part = 0; part < parts; part++) body(part);
#endif
}

bool use_avx2() {
  static const bool chosen = [] {
    const char* wish = std::getenv("REGROW_ISA");
    if (wish && std::strcmp(wish, "generic") == 0) return false;
#if defined(__x86_64__)
    return avx2_kernels_f32() != nullptr && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return false;
#endif
  }();
  return chosen;
}

Runner<float> runner_f32(int threads) { return {use_avx2() ? *avx2_kernels_f32() : generic_kernels_f32(), parallel_openmp, threads, kSerialBelow}; }
Runner<double> runner_f64(int threads) { return {generic_kernels_f64(), parallel_openmp, threads, kSerialBelow}; }

template <class F>
int guarded(F body) {
  try {
    body();
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  } catch (...) {
    return 2;
  }
}

template <class F>
int in_parts(int parts, F body) {
  return guarded([&] { parallel_openmp(parts, body); });
}

// The optimizer steps of several layers.
template <class T, class Step>
int all_steps(const Runner<T>& run, void (*kernel)(const Step&, Range), const Step* steps, int count) {
  int64_t weights = 0;
  for (int i = 0; i < count; i++) weights += steps[i].count;
  const int parts = run.parts_for(weights);
  return in_parts(parts, [&](int part) {
    for (int i = 0; i < count; i++) kernel(steps[i], share(steps[i].count, part, parts));
  });
}

Pool pool_of(const int* fields) {
  Pool pool;
  static_assert(sizeof(Pool) == 14 * sizeof(int));
  std::memcpy(&pool, fields, sizeof pool);
  return pool;
}

int64_t pixels_of(const Pool& p) { return int64_t(p.channels) * p.in_rows * p.in_cols; }

}  // namespace
}  // namespace regrow

using namespace regrow;

#define REGROW_API extern "C" __attribute__((visibility("default")))

REGROW_API const char* regrow_isa() { return use_avx2() ? "avx2" : "generic"; }

REGROW_API int regrow_plan_create(const int* geometry, const uint8_t* mask, int input_gradient, void** plan) {
  return guarded([&] {
    Geometry g;
    static_assert(sizeof(Geometry) == 15 * sizeof(int));
    std::memcpy(&g, geometry, sizeof g);
    *plan = new Plan(build_plan(g, mask, input_gradient ? Pass::input_gradient : Pass::forward));
  });
}

REGROW_API void regrow_plan_free(void* plan) { delete static_cast<Plan*>(plan); }

// One copy of the interface per precision.
#define REGROW_FOR_EACH_PRECISION(DEFINE) DEFINE(float, f32) DEFINE(double, f64)

// `position` non-null: `weight` is dense-shaped, its present entries are first gathered into `present`; else it is `present` itself.
#define DEFINE_PASSES(T, SUFFIX)                                                                                                          \
  REGROW_API int regrow_forward_##SUFFIX(const void* plan, const T* x, const T* weight, const uint32_t* position, int64_t count,          \
                                         T* present, const T* bias, T* y, int64_t samples, int threads) {                                 \
    return guarded([&] {                                                                                                                  \
      const auto run = runner_##SUFFIX(threads);                                                                                          \
      if (position) run.gather(weight, position, count, present);                                                                         \
      run.forward(*static_cast<const Plan*>(plan), x, position ? present : weight, bias, y, samples);                                     \
    });                                                                                                                                   \
  }                                                                                                                                       \
  /* dx, dw and dbias may be null: not wanted. */                                                                                         \
  REGROW_API int regrow_backward_##SUFFIX(const void* input_plan, const void* weight_plan, const T* x, const T* grad, const T* present,   \
                                          const uint32_t* position, int64_t count, T* dx, T* dw, T* dbias, int64_t channels,              \
                                          int64_t pixels, int64_t samples, int threads) {                                                 \
    return guarded([&] {                                                                                                                  \
      const auto run = runner_##SUFFIX(threads);                                                                                          \
      if (dx) run.forward(*static_cast<const Plan*>(input_plan), grad, present, nullptr, dx, samples);                                    \
      if (dw) run.weight_gradient(*static_cast<const Plan*>(weight_plan), x, grad, position, count, dw, samples);                         \
      if (dbias) run.bias_gradient(grad, channels, pixels * samples, dbias);                                                              \
    });                                                                                                                                   \
  }                                                                                                                                       \
  REGROW_API int regrow_transpose_##SUFFIX(const T* x, int64_t rows, int64_t cols, T* y, int threads) {                                   \
    const auto run = runner_##SUFFIX(threads);                                                                                            \
    const int parts = run.parts_for(rows * cols / kLanes);                                                                                \
    return in_parts(parts, [&](int part) { run.kernels.transpose(x, rows, cols, y, part, parts); });                                      \
  }
REGROW_FOR_EACH_PRECISION(DEFINE_PASSES)

#define DEFINE_STACK(T, SUFFIX)                                                                                                             \
  REGROW_API int regrow_stack_forward_##SUFFIX(const StackLayer<T>* layers, int depth, const T* x, int64_t samples, int threads) {          \
    return guarded([&] { stack_forward(runner_##SUFFIX(threads), layers, depth, x, samples); });                                            \
  }                                                                                                                                         \
  REGROW_API int regrow_stack_backward_##SUFFIX(const StackLayer<T>* layers, int depth, const T* x, const T* grad, int64_t samples,         \
                                                int threads) {                                                                              \
    return guarded([&] { stack_backward(runner_##SUFFIX(threads), layers, depth, x, grad, samples); });                                     \
  }
REGROW_FOR_EACH_PRECISION(DEFINE_STACK)

#define DEFINE_GLUE(T, SUFFIX)                                                                                                               \
  REGROW_API int regrow_load_images_##SUFFIX(const ImageBatch<T>* batch, int threads) {                                                      \
    const auto run = runner_##SUFFIX(threads);                                                                                               \
    const int parts = run.parts_for(batch->samples * batch->channels * batch->pixels / kLanes);                                              \
    return in_parts(parts, [&](int part) { run.kernels.load_images(*batch, part, parts); });                                                 \
  }                                                                                                                                          \
  REGROW_API int regrow_bernoulli_##SUFFIX(Twister* twister, double p, uint8_t* keep, int64_t count, int) {                                   \
    return guarded([&] { runner_##SUFFIX(1).kernels.bernoulli(*twister, p, keep, count); });                                                 \
  }                                                                                                                                          \
  REGROW_API int regrow_scale_kept_##SUFFIX(const T* x, const uint8_t* keep, double scale, T* y, int64_t size, int threads) {                \
    const auto run = runner_##SUFFIX(threads);                                                                                               \
    const int parts = run.parts_for(size / kLanes);                                                                                          \
    return in_parts(parts, [&](int part) {                                                                                                   \
      run.kernels.scale_kept(x, keep, T(scale), y, share(size, part, parts));                                                                          \
    });                                                                                                                                      \
  }                                                                                                                                          \
  REGROW_API int regrow_keep_present_##SUFFIX(T* x, const uint8_t* mask, int64_t size, int threads) {                                        \
    const auto run = runner_##SUFFIX(threads);                                                                                               \
    const int parts = run.parts_for(size / kLanes);                                                                                          \
    return in_parts(parts, [&](int part) { run.kernels.keep_present(x, mask, share(size, part, parts)); });                                  \
  }                                                                                                                                          \
  REGROW_API int regrow_channel_statistics_##SUFFIX(const T* x, int64_t channels, int64_t size, T* mean, T* variance, int threads) {         \
    const auto run = runner_##SUFFIX(threads);                                                                                               \
    const int parts = run.parts_for(channels * size / kLanes);                                                                               \
    return in_parts(parts, [&](int part) { run.kernels.channel_statistics(x, channels, size, mean, variance, part, parts); });               \
  }                                                                                                                                          \
  REGROW_API int regrow_scale_shift_##SUFFIX(const T* x, const T* scale, const T* shift, T* y, int64_t channels, int64_t size, int relu,     \
                                             int threads) {                                                                                  \
    const auto run = runner_##SUFFIX(threads);                                                                                               \
    const int parts = run.parts_for(channels * size / kLanes);                                                                               \
    return in_parts(parts, [&](int part) { run.kernels.scale_shift(x, scale, shift, y, channels, size, relu != 0, part, parts); });          \
  }                                                                                                                                          \
  REGROW_API int regrow_norm_backward_##SUFFIX(const T* x, const T* y, const T* g, const T* mean, const T* invstd, const T* weight, T* dx,   \
                                               T* dweight, T* dbias, int64_t channels, int64_t size, int training, int threads) {            \
    const auto run = runner_##SUFFIX(threads);                                                                                               \
    const int parts = run.parts_for(channels * size / kLanes);                                                                               \
    return in_parts(parts, [&](int part) {                                                                                                   \
      run.kernels.norm_backward(x, y, g, mean, invstd, weight, dx, dweight, dbias, channels, size, training != 0, part, parts);              \
    });                                                                                                                                      \
  }                                                                                                                                          \
  REGROW_API int regrow_max_pool_##SUFFIX(const int* pool, const T* x, T* y, uint8_t* winner, int64_t lanes, int threads) {                  \
    const auto run = runner_##SUFFIX(threads);                                                                                               \
    const Pool s = pool_of(pool);                                                                                                            \
    const int parts = run.parts_for(pixels_of(s) * lanes / kLanes);                                                                          \
    return in_parts(parts, [&](int part) { run.kernels.max_pool(s, x, y, winner, lanes, part, parts); });                                    \
  }                                                                                                                                          \
  REGROW_API int regrow_max_pool_backward_##SUFFIX(const int* pool, const T* g, const uint8_t* winner, T* dx, int64_t lanes, int threads) {  \
    const auto run = runner_##SUFFIX(threads);                                                                                               \
    const Pool s = pool_of(pool);                                                                                                            \
    const int parts = run.parts_for(pixels_of(s) * lanes / kLanes);                                                                          \
    return in_parts(parts, [&](int part) { run.kernels.max_pool_backward(s, g, winner, dx, lanes, part, parts); });                          \
  }
REGROW_FOR_EACH_PRECISION(DEFINE_GLUE)

#define DEFINE_STEPS(T, SUFFIX)                                                                                                              \
  REGROW_API int regrow_sgd_##SUFFIX(const SgdStep<T>* steps, int count, int threads) {                                                      \
    const auto run = runner_##SUFFIX(threads);                                                                                               \
    return all_steps(run, run.kernels.sgd_step, steps, count);                                                                               \
  }                                                                                                                                          \
  REGROW_API int regrow_adamw_##SUFFIX(const AdamWStep<T>* steps, int count, int threads) {                                                  \
    const auto run = runner_##SUFFIX(threads);                                                                                               \
    return all_steps(run, run.kernels.adamw_step, steps, count);                                                                             \
  }
REGROW_FOR_EACH_PRECISION(DEFINE_STEPS)
