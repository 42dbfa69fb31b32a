// Linear layers one after the other, with a ReLU behind each but the last: one call instead of a dozen, for layers so small that calls dominate.
#pragma once
#include "layer.h"

namespace regrow {

// y of each layer from x; all but the last rectified.
template <class T>
void stack_forward(const Runner<T>& run, const StackLayer<T>* layers, int depth, const T* x, int64_t samples);

// From the gradient of the last y: dx, dw and dbias of each layer; a dx arrives at the layer before behind its ReLU.
template <class T>
void stack_backward(const Runner<T>& run, const StackLayer<T>* layers, int depth, const T* x, const T* grad, int64_t samples);

}  // namespace regrow
