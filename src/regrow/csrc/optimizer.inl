// Optimizer steps that touch present weights only: index[i] is the flat position of the i-th. Arithmetic in torch's order.
// Included once per instruction set.

template <class T>
void sgd_step(const SgdOptions& o, T* weight, const T* grad, T* momentum, const uint32_t* index, Range mine) {
  const T lr = T(o.lr), decay = T(o.weight_decay), mu = T(o.momentum), undamped = T(1 - o.dampening);
  for (int64_t i = mine.begin; i < mine.end; i++) {
    const uint32_t w = index[i];
    T g = o.maximize ? -grad[w] : grad[w];
    if (o.weight_decay != 0) g += decay * weight[w];
    if (o.momentum != 0) {
      momentum[w] = o.first_step ? g : momentum[w] * mu + undamped * g;
      g = o.nesterov ? g + mu * momentum[w] : momentum[w];
    }
    weight[w] -= lr * g;
  }
}

template <class T>
void adamw_step(const AdamOptions& o, T* weight, const T* grad, T* first, T* second, const uint32_t* index, Range mine) {
  const double correction1 = 1 - __builtin_pow(o.beta1, o.step), correction2 = __builtin_sqrt(1 - __builtin_pow(o.beta2, o.step));
  const T shrink = T(1 - o.lr * o.weight_decay), step_size = T(o.lr / correction1), scale = T(correction2), eps = T(o.eps);
  const T new1 = T(1 - o.beta1), beta2 = T(o.beta2), new2 = T(1 - o.beta2);
  for (int64_t i = mine.begin; i < mine.end; i++) {
    const uint32_t w = index[i];
    const T g = o.maximize ? -grad[w] : grad[w];
    weight[w] *= shrink;
    first[w] += new1 * (g - first[w]);
    second[w] = second[w] * beta2 + new2 * g * g;
    weight[w] -= step_size * (first[w] / (T(__builtin_sqrt(second[w])) / scale + eps));
  }
}
