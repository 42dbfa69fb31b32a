// Optimizer steps that touch present weights only. Arithmetic in torch's order.

constexpr int64_t kStepsAhead = 32;  // weights whose places in the dense-shaped arrays are on their way to L1

// Calls step(w) for the position w of every weight of `mine`.
template <class Step, class... Arrays>
REGROW_INLINE void each_present(const uint32_t* index, Range mine, Step step, const Arrays*... arrays) {
  int64_t i = mine.begin;
  if (!index) {  // nothing but present weights is stored
    for (; i < mine.end; i++) step(i);
    return;
  }
  const int64_t far = mine.end - kStepsAhead;
  for (; i < far; i++) {
    (__builtin_prefetch(arrays + index[i + kStepsAhead], 1), ...);
    step(index[i]);
  }
  for (; i < mine.end; i++) step(index[i]);
}

template <class T>
void sgd_step(const SgdStep<T>& step, Range mine) {
  const SgdStep<T> o = step;  // a copy that the stores below cannot change: its fields stay in registers
  const T lr = T(o.lr), decay = T(o.weight_decay), mu = T(o.momentum), undamped = T(1 - o.dampening);
  const auto update = [&](int64_t w) {
    T g = o.maximize ? -o.grad[w] : o.grad[w];
    if (o.weight_decay != 0) g += decay * o.weight[w];
    if (o.momentum != 0) {
      o.velocity[w] = o.first_step ? g : o.velocity[w] * mu + undamped * g;
      g = o.nesterov ? g + mu * o.velocity[w] : o.velocity[w];
    }
    o.weight[w] -= lr * g;
  };
  if (o.momentum != 0)
    each_present(o.index, mine, update, o.weight, o.grad, o.velocity);
  else
    each_present(o.index, mine, update, o.weight, o.grad);
}

template <class T>
void adamw_step(const AdamWStep<T>& step, Range mine) {
  const AdamWStep<T> o = step;
  const double correction1 = 1 - __builtin_pow(o.beta1, o.step), correction2 = __builtin_sqrt(1 - __builtin_pow(o.beta2, o.step));
  const T shrink = T(1 - o.lr * o.weight_decay), step_size = T(o.lr / correction1), scale = T(correction2), eps = T(o.eps);
  const T new1 = T(1 - o.beta1), beta2 = T(o.beta2), new2 = T(1 - o.beta2);
  const auto update = [&](int64_t w) {
    const T g = o.maximize ? -o.grad[w] : o.grad[w];
    o.weight[w] *= shrink;
    o.first[w] += new1 * (g - o.first[w]);
    o.second[w] = o.second[w] * beta2 + new2 * g * g;
    o.weight[w] -= step_size * (o.first[w] / (T(__builtin_sqrt(o.second[w])) / scale + eps));
  };
  each_present(o.index, mine, update, o.weight, o.grad, o.first, o.second);
}
