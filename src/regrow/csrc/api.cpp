// The C interface that Python loads with ctypes. Arguments are checked in Python; errors here are status codes, never exceptions.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <new>
#include <vector>

#include "abi.h"
#include "ascending.h"
#include "planned.h"
#include "stack.h"
#include "tables.h"

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

template <class T>
const Kernels<T>& table_of();
template <>
const Kernels<float>& table_of() { return chosen_table(); }
template <>
const Kernels<double>& table_of() { return *double_table(); }

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

// Everything Python calls, in one precision. The last argument is the number of threads.
template <class T>
struct Api {
  static Runner<T> runner(int threads) { return {table_of<T>(), parallel_openmp, threads, kSerialBelow}; }

  // Runs body(runner, part, parts) for all parts of `work` vectors.
  template <class F>
  static int in_parts(int threads, int64_t work, F body) {
    const auto run = runner(threads);
    const int parts = run.parts_for(work);
    return guarded([&] { parallel_openmp(parts, [&](int part) { body(run.kernels, part, parts); }); });
  }

  static Few few_of(int samples) { return {samples, table_of<T>().traits->vector_bytes / int(sizeof(T))}; }

  // Whether a plan for so many samples serves these alone.
  static int runs_across(const Geometry* geometry, int samples, int* answer, int) {
    *answer = regrow::runs_across(*table_of<T>().traits, *geometry, few_of(samples));
    return 0;
  }

  // The present weights are those of a mask, or (mask null) of rows and columns, see `Support`. `samples`: 0, or of all batches that the plan will see.
  static int plan_create(const Geometry* geometry, const uint8_t* mask, const int64_t* row_begin, const int32_t* column, int input_gradient,
                         int samples, void** plan, int) {
    const Traits& traits = *table_of<T>().traits;
    const Pass pass = input_gradient ? Pass::input_gradient : Pass::forward;
    const Few few = few_of(samples);
    return guarded([&] {
      *plan = new Plan(mask ? build_plan(traits, *geometry, mask, pass, few) : build_plan(traits, *geometry, Support{row_begin, column}, pass, few));
    });
  }

  static Order order_of(int rows) { return rows ? Order::rows : Order::chwn; }

  // `rows`: features of x and y lie as torch has them, [samples][features].
  // `position` non-null: `weight` is dense-shaped, its present entries are first gathered into `present`; else it is `present` itself.
  static int forward(const Plan* plan, const T* x, const T* weight, const uint32_t* position, int64_t count, T* present, const T* bias, T* y,
                     int64_t samples, int rows, int threads) {
    return guarded([&] {
      const auto run = runner(threads);
      if (position) run.gather(weight, position, count, present);
      run.forward(*plan, x, position ? present : weight, bias, y, samples, order_of(rows));
    });
  }

  // dx, dw and dbias may be null: not wanted. `position` null: dw has present weights only. `same_weights`: both plans are of the same mask.
  static int backward(const Plan* input_plan, const Plan* weight_plan, int same_weights, const T* x, const T* grad, const T* present, const uint32_t* position,
                      int64_t count, T* dx, T* dw, T* dbias, int64_t channels, int64_t pixels, int64_t samples, int rows, int threads) {
    return guarded([&] {
      const auto run = runner(threads);
      run.gradients(input_plan, weight_plan, same_weights != 0, x, grad, present, position, count, dx, dw, samples, order_of(rows));
      if (dbias) run.bias_gradient(grad, channels, pixels * samples, dbias, order_of(rows));
    });
  }

  static int stack_forward(const StackLayer<T>* layers, int depth, const T* x, int64_t samples, int threads) {
    return guarded([&] { regrow::stack_forward(runner(threads), layers, depth, x, samples); });
  }

  static int stack_backward(const StackLayer<T>* layers, int depth, const T* x, const T* grad, int64_t samples, int threads) {
    return guarded([&] { regrow::stack_backward(runner(threads), layers, depth, x, grad, samples); });
  }

  static int program_create(const ProgramTensor* tensors, int tensor_count, const ProgramStep<T>* steps, int step_count, int samples_innermost,
                            void** program, int) {
    return guarded([&] {
      *program = new Program<T>(*table_of<T>().traits, tensors, tensor_count, steps, step_count, samples_innermost != 0);
    });
  }

  static int program_run(const void* program, const T* x, T* y, int64_t samples, int threads) {
    return guarded([&] { static_cast<const Program<T>*>(program)->run(runner(threads), x, y, samples); });
  }

  static int program_free(void* program, int) {
    delete static_cast<Program<T>*>(program);
    return 0;
  }

  static int transpose(const T* x, int64_t rows, int64_t cols, T* y, int threads) {
    return in_parts(threads, rows * cols / kWorkLanes, [&](auto& k, int part, int parts) { k.transpose(x, rows, cols, y, part, parts); });
  }

  static int channels_last(const T* x, int64_t channels, int64_t pixels, int64_t samples, T* y, int threads) {
    return in_parts(threads, channels * pixels * samples / kWorkLanes,
                    [&](auto& k, int part, int parts) { k.channels_last(x, channels, pixels, samples, y, part, parts); });
  }

  static int channel_statistics(const T* x, int64_t channels, int64_t size, T* mean, T* variance, int threads) {
    return in_parts(threads, channels * size / kWorkLanes,
                    [&](auto& k, int part, int parts) { k.channel_statistics(x, channels, size, mean, variance, part, parts); });
  }

  static int scale_shift(const T* x, const T* scale, const T* shift, T* y, int64_t channels, int64_t size, int relu, int threads) {
    return in_parts(threads, channels * size / kWorkLanes,
                    [&](auto& k, int part, int parts) { k.scale_shift(x, scale, shift, y, channels, size, relu != 0, part, parts); });
  }

  static int norm_backward(const T* x, const T* y, const T* g, const T* mean, const T* invstd, const T* weight, T* dx, T* dweight, T* dbias,
                           int64_t channels, int64_t size, int training, int threads) {
    return in_parts(threads, channels * size / kWorkLanes, [&](auto& k, int part, int parts) {
      k.norm_backward(x, y, g, mean, invstd, weight, dx, dweight, dbias, channels, size, training != 0, part, parts);
    });
  }

  static int64_t pool_work(const Pool& p, int64_t lanes) { return int64_t(p.channels) * p.in_rows * p.in_cols * lanes / kWorkLanes; }

  static int max_pool(const Pool* pool, const T* x, T* y, uint8_t* winner, int64_t lanes, int threads) {
    return in_parts(threads, pool_work(*pool, lanes),
                    [&](auto& k, int part, int parts) { k.max_pool(*pool, x, y, winner, lanes, part, parts); });
  }

  static int max_pool_backward(const Pool* pool, const T* g, const uint8_t* winner, T* dx, int64_t lanes, int threads) {
    return in_parts(threads, pool_work(*pool, lanes),
                    [&](auto& k, int part, int parts) { k.max_pool_backward(*pool, g, winner, dx, lanes, part, parts); });
  }

  static int load_images(const ImageBatch<T>* batch, int threads) {
    return in_parts(threads, batch->samples * batch->channels * batch->pixels / kWorkLanes,
                    [&](auto& k, int part, int parts) { k.load_images(*batch, part, parts); });
  }

  static int bernoulli(Twister* twister, double p, uint8_t* keep, int64_t count, int) {
    return guarded([&] { table_of<T>().bernoulli(*twister, p, keep, count); });
  }

  static int scale_kept(const T* x, const uint8_t* keep, double scale, T* y, int64_t size, int threads) {
    return in_parts(threads, size / kWorkLanes,
                    [&](auto& k, int part, int parts) { k.scale_kept(x, keep, T(scale), y, share(size, part, parts)); });
  }

  static int keep_present(T* x, const uint8_t* mask, int64_t size, int threads) {
    return in_parts(threads, size / kWorkLanes, [&](auto& k, int part, int parts) { k.keep_present(x, mask, share(size, part, parts)); });
  }

  static int find_places(const int64_t* listed, int64_t count, const int64_t* wanted, int64_t wanted_count, int64_t* place, int) {
    regrow::find_places(listed, count, wanted, wanted_count, place);
    return 0;
  }

  static int unite(const int64_t* a, int64_t a_count, const int64_t* b, int64_t b_count, int64_t* both, int64_t* found, int) {
    *found = regrow::unite(a, a_count, b, b_count, both);
    return 0;
  }

  static int encode_gaps(const int64_t* position, int64_t count, uint8_t* code, int64_t* bytes, int) {
    *bytes = regrow::encode_gaps(position, count, code);
    return 0;
  }

  static int decode_gaps(const uint8_t* code, int64_t bytes, int64_t limit, int64_t* position, int64_t* whole, int) {
    *whole = regrow::decode_gaps(code, bytes, limit, position);
    return 0;
  }

  // The optimizer steps of several layers.
  template <class Step>
  static int all_steps(void (*kernel)(const Step&, Range), const Step* steps, int count, int threads) {
    int64_t weights = 0;
    for (int i = 0; i < count; i++) weights += steps[i].count;
    return in_parts(threads, weights, [&](auto&, int part, int parts) {
      for (int i = 0; i < count; i++) kernel(steps[i], share(steps[i].count, part, parts));
    });
  }

  static int sgd(const SgdStep<T>* steps, int count, int threads) { return all_steps(table_of<T>().sgd_step, steps, count, threads); }
  static int adamw(const AdamWStep<T>* steps, int count, int threads) { return all_steps(table_of<T>().adamw_step, steps, count, threads); }
};

std::string describe_all() {
  std::string text = describe_records();
#define ENTRY(NAME) text += describe(#NAME "_f32", Api<float>::NAME) + describe(#NAME "_f64", Api<double>::NAME);
#include "entries.inc"
#undef ENTRY
  return text;
}

std::string names_of_tables() {
  std::string names;
  for (const auto* table : tables()) names += (names.empty() ? "" : " ") + std::string(table->traits->name);
  return names;
}

}  // namespace
}  // namespace regrow

using namespace regrow;

#define REGROW_API extern "C" __attribute__((visibility("default")))

// What the library offers, see abi.h.
REGROW_API const char* regrow_abi() {
  static const std::string text = describe_all();
  return text.c_str();
}

// The kernels in use, and all that this machine can run, best first.
REGROW_API const char* regrow_isa() { return chosen_table().traits->name; }
REGROW_API const char* regrow_isas() {
  static const std::string names = names_of_tables();
  return names.c_str();
}

REGROW_API int64_t regrow_plan_bytes(const void* plan) { return int64_t(static_cast<const Plan*>(plan)->bytes()); }
REGROW_API void regrow_plan_free(void* plan) { delete static_cast<Plan*>(plan); }

// The best that multiply-adds reach with the kernels' own vectors, in billions of floating-point operations per second: on registers
// alone (`bytes` = 0), or with one operand from so much memory of each thread.
REGROW_API double regrow_fma_peak(int64_t rounds, int threads, int64_t bytes) {
  if (rounds < 1 || threads < 1 || bytes < 0) return 0.0;
  const Kernels<float>& table = chosen_table();
  const int lanes = table.traits->vector_bytes / 4;
  const int64_t vectors = bytes / table.traits->vector_bytes / kPeakAccumulators * kPeakAccumulators;
  if (bytes && !vectors) return 0.0;
  const int64_t sweeps = bytes ? rounds * kPeakAccumulators / vectors + 1 : rounds;
  volatile float seed = 1e-3f;  // read at run time, so that no compiler can compute the result
  std::vector<Scratch> memory(threads);
  for (Scratch& own : memory) {
    if (float* begin = bytes ? own.get<float>(vectors * lanes) : nullptr) std::fill(begin, begin + vectors * lanes, float(seed));
  }
  const auto begin = std::chrono::steady_clock::now();
  parallel_openmp(threads, [&](int part) {
    float total;
    if (bytes)
      table.multiply_add_from(memory[part].get<float>(vectors * lanes), vectors, sweeps, &total);
    else
      table.multiply_add(sweeps, seed, &total);
    volatile float kept = total;
    (void)kept;
  });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return 2e-9 * double(bytes ? vectors : kPeakAccumulators) * lanes * double(sweeps) * threads / seconds;
}
