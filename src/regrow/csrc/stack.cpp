#include "stack.h"

namespace regrow {

template <class T>
void stack_forward(const Runner<T>& run, const StackLayer<T>* layers, int depth, const T* x, int64_t samples) {
  for (int i = 0; i < depth; i++) {
    const StackLayer<T>& layer = layers[i];
    if (layer.position) run.gather(layer.weight, layer.position, layer.count, layer.present);
    run.forward(*layer.plan, x, layer.present, layer.bias, layer.y, samples);
    x = layer.y;
    if (i + 1 < depth) {
      const int64_t size = layer.outputs * samples;
      const int parts = run.parts_for(size / kWorkLanes);
      run.parallel(parts, [&](int part) { run.kernels.rectify(layer.y, share(size, part, parts)); });
    }
  }
}

template <class T>
void stack_backward(const Runner<T>& run, const StackLayer<T>* layers, int depth, const T* x, const T* grad, int64_t samples) {
  for (int i = depth - 1; i >= 0; i--) {
    const StackLayer<T>& layer = layers[i];
    const T* input = i ? layers[i - 1].y : x;
    run.gradients(layer.input_plan, layer.gradient_plan, layer.gradient_plan == layer.plan, input, grad, layer.present, layer.gradient_position,
                  layer.gradient_count, layer.dx, layer.dw, samples);
    if (layer.dbias) run.bias_gradient(grad, layer.outputs, samples, layer.dbias);
    if (!layer.dx) return;  // no layer before this one wants a gradient either
    if (i > 0) {
      const int64_t size = layers[i - 1].outputs * samples;
      const int parts = run.parts_for(size / kWorkLanes);
      run.parallel(parts, [&](int part) { run.kernels.rectify_gradient(input, layer.dx, share(size, part, parts)); });
    }
    grad = layer.dx;
  }
}

#define INSTANTIATE(T)                                                                                                   \
  template void stack_forward(const Runner<T>&, const StackLayer<T>*, int, const T*, int64_t);                           \
  template void stack_backward(const Runner<T>&, const StackLayer<T>*, int, const T*, const T*, int64_t);
INSTANTIATE(float)
INSTANTIATE(double)

}  // namespace regrow
