#include "layer.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "source.h"

namespace regrow {
namespace {

constexpr int kAhead = 64;       // weights prefetched
constexpr size_t kLineBytes = 64;
constexpr int64_t kSparse = 12;  // places of a dense-shaped tensor per present weight
constexpr int kManyRegisters = 32, kWideBytes = 32;
constexpr int64_t kManyLanes = 1024;
constexpr int kNarrowVectors = 8;  // tiles of half as many at most: see vectors_for

// Calls move(i) for all of `mine`, with memory[index[i]] on its way to a cache of this level (3: L1, 2: L2).
template <int Level, class T, class Move>
void move_ahead(const T* memory, const uint32_t* index, Range mine, Move move) {
  int64_t i = mine.begin;
  for (; i + kAhead < mine.end; i++) {
    __builtin_prefetch(memory + index[i + kAhead], 0, Level);
    move(i);
  }
  for (; i < mine.end; i++) move(i);
}

// The same for a dense-shaped tensor in its own order. Where hardly two weights share a cache line, each is a miss to memory: L2 has more
// of them in flight than L1. Where many do, the hardware has seen the stream and L1 is nearer.
template <class T, class Move>
void move_dense(const T* dense, const uint32_t* position, Range mine, Move move) {
  const bool sparse = mine.begin < mine.end && position[mine.end - 1] - position[mine.begin] >= kSparse * (mine.end - mine.begin);
  sparse ? move_ahead<2>(dense, position, mine, move) : move_ahead<3>(dense, position, mine, move);
}

// sums[0] += sums[1] + ... : partial sums of the threads, added in a fixed order.
template <class T>
void reduce(T* sums, size_t stride, int count, Range mine) {
  for (int t = 1; t < count; t++)
    for (int64_t k = mine.begin; k < mine.end; k++) sums[k] += sums[stride * t + k];
}

// Memory for the weights in the order of a list: one for all passes, as large layers have many.
template <class T>
T* values_of(size_t entries) {
  static thread_local Scratch scratch;
  return scratch.get<T>(entries + kEntryPadding);
}

// gradient[weight] <- its sum; of maps added to what the plan's other stencils found.
template <class T>
void fold_sums(const Plan& plan, const Stencil& s, const T* sums, T* gradient, int part, int parts) {
  if (s.row_begin) return for_each_source(s, part, parts, [&](int64_t k, uint32_t weight) { gradient[weight] = sums[k]; });
  const Range mine = share(plan.fold.target.empty() ? int64_t(s.entries) : int64_t(plan.fold.target.size()), part, parts);
  if (plan.fold.target.empty()) {
    for (int64_t k = mine.begin; k < mine.end; k++) gradient[s.source[k]] += sums[k];
    return;
  }
  const Fold& fold = plan.fold;
  for (int64_t z = mine.begin; z < mine.end; z++) {
    T total = 0;
    for (uint32_t i = fold.begin[z]; i < fold.begin[z + 1]; i++) total += sums[fold.entry[i]];
    gradient[fold.target[z]] = total;
  }
}

}  // namespace

template <class T>
int64_t Runner<T>::lanes_of(const Stencil& s, int64_t samples) const {
  if (s.across && s.across != samples) throw std::invalid_argument("a plan for another number of samples");
  return s.across ? kernels.traits->vector_bytes / int64_t(sizeof(T)) : samples * s.lanes_per_sample;
}

template <class T>
void Runner<T>::forward(const Plan& plan, const T* x, const T* weights, const T* bias, T* y, int64_t samples, Order order) const {
  if (samples == 0) return;
  T* values = values_of<T>(plan.entries());
  for (const Stencil& s : plan.stencils) {
    list_values(s, weights, values);
    const int64_t lanes = lanes_of(s, samples);
    const int parts = parts_for(lanes * s.rows * s.cols * (int64_t(s.entries) + s.out_channels) / kWorkLanes);
    parallel(parts, [&](int part) { kernels.forward(s, order, x, values, bias, y, lanes, part, parts); });
  }
}

template <class T>
void Runner<T>::weight_gradient(const Plan& plan, const T* x, const T* grad_out, const uint32_t* position, int64_t count, T* dw,
                                int64_t samples, Order order) const {
  placed(position, count, dw, [&](T* gradient) {
    present_gradient(plan, gradient, count, samples, [](const Stencil&) {}, [&](const Stencil& s, T* sums, int64_t lanes, int part, int parts) {
      kernels.weight_gradient(s, order, x, grad_out, sums, lanes, part, parts);
    });
  });
}

template <class T>
void Runner<T>::gradients(const Plan* input_plan, const Plan* weight_plan, bool same_weights, const T* x, const T* grad_out, const T* weights,
                          const uint32_t* position, int64_t count, T* dx, T* dw, int64_t samples, Order order) const {
  if (dx && dw && same_weights && !input_plan->stencils.empty() && walks_once(*input_plan) && once_is_faster(input_plan->stencils[0], samples))
    return both_gradients(*input_plan, x, grad_out, weights, position, count, dx, dw, samples, order);
  if (dx) forward(*input_plan, grad_out, weights, nullptr, dx, samples, order);
  if (dw) weight_gradient(*weight_plan, x, grad_out, position, count, dw, samples, order);
}

template <class T>
bool Runner<T>::walks_once(const Plan& transposed) const {
  const auto fits = [&](const Stencil& s) {
    return s.matrix ? s.row_begin && s.transposed : s.tile.rows * s.tile.cols <= both_vectors(*kernels.traits);
  };
  return std::all_of(transposed.stencils.begin(), transposed.stencils.end(), fits);
}

// A walk for both gradients holds twice as much in registers. Where they are few, tiles of a matrix are half as wide, which was measured to pay
// only for many lanes in wide vectors, or where blocks are so large that tiles are narrow anyway.
template <class T>
bool Runner<T>::once_is_faster(const Stencil& s, int64_t samples) const {
  const Traits& t = *kernels.traits;
  if (!s.matrix || t.registers >= kManyRegisters) return true;
  const bool large_blocks = int64_t(s.in_block) * t.vector_bytes * kNarrowVectors > t.cache_bytes;
  return large_blocks || (t.vector_bytes >= kWideBytes && samples * s.lanes_per_sample >= kManyLanes);
}

template <class T>
void Runner<T>::both_gradients(const Plan& transposed, const T* x, const T* grad_out, const T* weights, const uint32_t* position, int64_t count,
                               T* dx, T* dw, int64_t samples, Order order) const {
  T* values = values_of<T>(transposed.entries());
  placed(position, count, dw, [&](T* gradient) {
    present_gradient(transposed, gradient, count, samples, [&](const Stencil& s) { list_values(s, weights, values); },
                     [&](const Stencil& s, T* sums, int64_t lanes, int part, int parts) {
                       kernels.both_gradients(s, order, x, grad_out, values, dx, sums, lanes, part, parts);
                     });
  });
}

// present(gradient) writes those of the present weights, which go to dw: at their positions, or as they are.
template <class T>
template <class Present>
void Runner<T>::placed(const uint32_t* position, int64_t count, T* dw, const Present& present) const {
  static thread_local Scratch scratch;
  T* gradient = position ? scratch.get<T>(size_t(count)) : dw;
  present(gradient);
  if (position) scatter(gradient, position, count, dw);
}

template <class T>
void Runner<T>::bias_gradient(const T* grad_out, int64_t channels, int64_t size, T* dbias, Order order) const {
  const int parts = parts_for(channels * size / kWorkLanes);
  parallel(parts, [&](int part) {
    if (order == Order::rows)
      kernels.column_sums(grad_out, size, channels, dbias, part, parts);
    else
      kernels.channel_sums(grad_out, channels, size, dbias, part, parts);
  });
}

// gradient <- what walk(stencil, sums, lanes, part, parts) sums up for the entries of each stencil, after ready(stencil).
template <class T>
template <class Ready, class Walk>
void Runner<T>::present_gradient(const Plan& plan, T* gradient, int64_t count, int64_t samples, const Ready& ready, const Walk& walk) const {
  static thread_local Scratch scratch;
  if (plan.stencils.empty() || !plan.stencils[0].row_begin) std::fill_n(gradient, count, T(0));  // weights that only meet padding are in no list
  for (const Stencil& s : plan.stencils) {
    ready(s);
    const int64_t lanes = lanes_of(s, samples);
    const int parts = parts_for(lanes * s.rows * s.cols * int64_t(s.entries) / kWorkLanes);
    const size_t stride = (s.entries + 15) / 16 * 16;  // whole cache lines
    T* sums = scratch.get<T>(stride * parts);
    parallel(parts, [&](int part) {
      std::memset(static_cast<void*>(sums + stride * part), 0, stride * sizeof(T));
      if (lanes > 0) walk(s, sums + stride * part, lanes, part, parts);
    });
    if (parts > 1) parallel(parts, [&](int part) { reduce(sums, stride, parts, share(int64_t(s.entries), part, parts)); });
    parallel(parts, [&](int part) { fold_sums(plan, s, sums, gradient, part, parts); });
  }
}

template <class T>
void Runner<T>::list_values(const Stencil& s, const T* weights, T* values) const {
  const int parts = parts_for(int64_t(s.entries));
  const uint32_t* source = s.source;
  parallel(parts, [&](int part) {
    if (s.row_begin && s.transposed)
      return for_each_source(s, part, parts, [&](int64_t k, uint32_t weight) {
        __builtin_prefetch(weights + weight + kLineBytes / sizeof(T));  // one stream per input of the block: too many for the hardware to foresee
        values[k] = weights[weight];
      });
    if (s.row_begin) return for_each_source(s, part, parts, [&](int64_t k, uint32_t weight) { values[k] = weights[weight]; });
    move_ahead<3>(weights, source, share(int64_t(s.entries), part, parts), [&](int64_t k) { values[k] = weights[source[k]]; });
  });
}

template <class T>
void Runner<T>::gather(const T* dense, const uint32_t* position, int64_t count, T* present) const {
  const int parts = parts_for(count);
  parallel(parts, [&](int part) {
    move_dense(dense, position, share(count, part, parts), [&](int64_t i) { present[i] = dense[position[i]]; });
  });
}

template <class T>
void Runner<T>::scatter(const T* present, const uint32_t* position, int64_t count, T* dense) const {
  const int parts = parts_for(count);
  parallel(parts, [&](int part) {
    move_dense(dense, position, share(count, part, parts), [&](int64_t i) { dense[position[i]] = present[i]; });
  });
}

template struct Runner<float>;
template struct Runner<double>;

}  // namespace regrow
