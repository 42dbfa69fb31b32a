// Optimizer steps that touch present weights only. Arithmetic in torch's order. Every sum of products says which product is rounded: left
// to the compiler, vectors and the rest behind them, or stored and present weights, would differ in the last bit.

template <class T>
REGROW_INLINE T multiplied_and_added(T a, T b, T c) {
#if defined(__FP_FAST_FMAF) && defined(__FP_FAST_FMA)
  if constexpr (sizeof(T) == sizeof(float)) return __builtin_fmaf(a, b, c);
  return __builtin_fma(a, b, c);
#else
  return a * b + c;
#endif
}

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
    if (o.weight_decay != 0) g = multiplied_and_added(decay, o.weight[w], g);
    if (o.momentum != 0) {
      o.velocity[w] = o.first_step ? g : multiplied_and_added(undamped, g, o.velocity[w] * mu);
      g = o.nesterov ? multiplied_and_added(mu, o.velocity[w], g) : o.velocity[w];
    }
    o.weight[w] = multiplied_and_added(-lr, g, o.weight[w]);
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
    const T kept = o.weight[w] * shrink;
    o.first[w] = multiplied_and_added(new1, g - o.first[w], o.first[w]);
    o.second[w] = multiplied_and_added(new2 * g, g, o.second[w] * beta2);
    o.weight[w] = multiplied_and_added(-step_size, o.first[w] / (T(__builtin_sqrt(o.second[w])) / scale + eps), kept);
  };
  each_present(o.index, mine, update, o.weight, o.grad, o.first, o.second);
}
