// Optimizer steps that touch present weights only. Arithmetic in torch's order.
// Included once per instruction set.

template <class T>
void sgd_step(const SgdStep<T>& step, Range mine) {
  const SgdStep<T> o = step;  // a copy that the stores below cannot change: its fields stay in registers
  const T lr = T(o.lr), decay = T(o.weight_decay), mu = T(o.momentum), undamped = T(1 - o.dampening);
  for (int64_t i = mine.begin; i < mine.end; i++) {
    const uint32_t w = o.index[i];
    T g = o.maximize ? -o.grad[w] : o.grad[w];
    if (o.weight_decay != 0) g += decay * o.weight[w];
    if (o.momentum != 0) {
      o.velocity[w] = o.first_step ? g : o.velocity[w] * mu + undamped * g;
      g = o.nesterov ? g + mu * o.velocity[w] : o.velocity[w];
    }
    o.weight[w] -= lr * g;
  }
}

template <class T>
void adamw_step(const AdamWStep<T>& step, Range mine) {
  const AdamWStep<T> o = step;
  const double correction1 = 1 - __builtin_pow(o.beta1, o.step), correction2 = __builtin_sqrt(1 - __builtin_pow(o.beta2, o.step));
  const T shrink = T(1 - o.lr * o.weight_decay), step_size = T(o.lr / correction1), scale = T(correction2), eps = T(o.eps);
  const T new1 = T(1 - o.beta1), beta2 = T(o.beta2), new2 = T(1 - o.beta2);
  for (int64_t i = mine.begin; i < mine.end; i++) {
    const uint32_t w = o.index[i];
    const T g = o.maximize ? -o.grad[w] : o.grad[w];
    o.weight[w] *= shrink;
    o.first[w] += new1 * (g - o.first[w]);
    o.second[w] = o.second[w] * beta2 + new2 * g * g;
    o.weight[w] -= step_size * (o.first[w] / (T(__builtin_sqrt(o.second[w])) / scale + eps));
  }
}
