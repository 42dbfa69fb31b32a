// Descriptions of the operations between sparse layers, and of optimizer steps.
#pragma once
#include <cstdint>

namespace regrow {

struct Pool {
  int channels, in_rows, in_cols, out_rows, out_cols;
  int kernel_rows, kernel_cols, stride_rows, stride_cols, pad_rows, pad_cols, dilation_rows, dilation_cols;
  int rectified;  // 1: a ReLU follows
};

// Samples order[0], order[1], ... of a set of images of bytes, as a batch of normalised numbers.
template <class T>
struct ImageBatch {
  const uint8_t* images;
  const int64_t* order;
  int64_t samples, channels, pixels;
  const T *scale, *shift;  // per channel
  T* y;                    // [channel][pixel][sample] if samples are innermost, else [sample][channel][pixel]
  int samples_innermost;
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
