// Descriptions of the operations between sparse layers, and of optimizer steps.
#pragma once

namespace regrow {

struct Pool {
  int channels, in_rows, in_cols, out_rows, out_cols;
  int kernel_rows, kernel_cols, stride_rows, stride_cols, pad_rows, pad_cols, dilation_rows, dilation_cols;
};

struct SgdOptions {
  double lr, momentum, dampening, weight_decay;
  int nesterov, maximize, first_step;
};

struct AdamOptions {
  double lr, beta1, beta2, eps, weight_decay, step;
  int maximize;
};

}  // namespace regrow
