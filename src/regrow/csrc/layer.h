// The passes of one layer over a plan, for any kernel table and any way to run in parallel.
#pragma once
#include <functional>

#include "kernels.h"

namespace regrow {

constexpr int kWorkLanes = 8;  // lanes that count as one unit of work where threads are shared out

// Runs body(0) ... body(parts - 1), possibly at the same time, and returns when all are done.
using ParallelFor = void (*)(int parts, const std::function<void(int)>& body);

template <class T>
struct Runner {
  const Kernels<T>& kernels;
  ParallelFor parallel;
  int threads;
  int64_t serial_below;  // vector multiply-adds that are not worth waking threads for

  int parts_for(int64_t work) const { return work < serial_below ? 1 : threads; }

  // y = plan(x) with the present weights in mask order, x and y in the same order of memory (rows: linear layers only); bias may be null. Also the input gradient, on the transposed plan.
  void forward(const Plan& plan, const T* x, const T* weights, const T* bias, T* y, int64_t samples, Order order = Order::chwn) const;
  // dw[position[w]] of every weight w of the plan <- the sum over samples and pixels; without positions dw[w].
  void weight_gradient(const Plan& plan, const T* x, const T* grad_out, const uint32_t* position, int64_t count, T* dw, int64_t samples,
                       Order order = Order::chwn) const;
  // dx and dw (null: not wanted) in the cheapest way. `same_weights`: both plans are of the same mask.
  void gradients(const Plan* input_plan, const Plan* weight_plan, bool same_weights, const T* x, const T* grad_out, const T* weights,
                 const uint32_t* position, int64_t count, T* dx, T* dw, int64_t samples, Order order = Order::chwn) const;
  // Both in one walk of a transposed plan that `walks_once` is true of: maps whose tiles fit twice into registers, and matrices that are not unrolled.
  bool walks_once(const Plan& transposed) const;
  void both_gradients(const Plan& transposed, const T* x, const T* grad_out, const T* weights, const uint32_t* position, int64_t count, T* dx,
                      T* dw, int64_t samples, Order order = Order::chwn) const;
  // dbias[c] <- the sum of the `size` values of channel c: a run of them, or a column of rows.
  void bias_gradient(const T* grad_out, int64_t channels, int64_t size, T* dbias, Order order = Order::chwn) const;
  // present[i] <- dense[position[i]].
  void gather(const T* dense, const uint32_t* position, int64_t count, T* present) const;

 private:
  int64_t lanes_of(const Stencil& s, int64_t samples) const;
  bool once_is_faster(const Stencil& s, int64_t samples) const;
  void list_values(const Stencil& s, const T* weights, T* values) const;
  template <class Ready, class Walk>
  void present_gradient(const Plan& plan, T* gradient, int64_t count, int64_t samples, const Ready& ready, const Walk& walk) const;
  template <class Present>
  void placed(const uint32_t* position, int64_t count, T* dw, const Present& present) const;
  void scatter(const T* present, const uint32_t* position, int64_t count, T* dense) const;
};

extern template struct Runner<float>;
extern template struct Runner<double>;

}  // namespace regrow
