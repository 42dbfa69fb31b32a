// Descriptions of the operations between sparse layers, and of optimizer steps.
#pragma once
#include <cstdint>

namespace regrow {

struct Pool {
  int channels, in_rows, in_cols, out_rows, out_cols;
  int kernel_rows, kernel_cols, stride_rows, stride_cols, pad_rows, pad_cols, dilation_rows, dilation_cols;
};

// One layer's optimizer step: index[i] is the flat position of the i-th present weight.
template <class T>
struct SgdStep {
  double lr, momentum, dampening, weight_decay;
  int nesterov, maximize, first_step;
  T* weight;
  const T* grad;
  T* velocity;
  const uint32_t* index;
  int64_t count;
};

template <class T>
struct AdamWStep {
  double lr, beta1, beta2, eps, weight_decay, step;
  int maximize;
  T* weight;
  const T* grad;
  T *first, *second;
  const uint32_t* index;
  int64_t count;
};

}  // namespace regrow
