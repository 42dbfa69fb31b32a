// Random programs (planned.h) against plain loops in double precision.
#pragma once
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "planned.h"

namespace program_test {

using namespace regrow;

template <class T>
struct Network {
  std::vector<ProgramTensor> tensors;
  std::vector<ProgramStep<T>> steps;
  std::vector<std::vector<int32_t>> where;
  std::vector<std::vector<T>> numbers;
  std::mt19937 bits;

  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(bits); }

  const T* draw(size_t count) {
    std::normal_distribution<double> normal;
    std::vector<T> values(count);
    for (T& value : values) value = T(normal(bits));
    numbers.push_back(values);
    return numbers.back().data();
  }

  ProgramStep<T>& step(int kind, int source) {
    ProgramStep<T> s{};
    s.kind = kind, s.source = source, s.other = -1, s.target = int(tensors.size());
    s.kernel_rows = s.kernel_cols = s.stride_rows = s.stride_cols = s.dilation_rows = s.dilation_cols = s.groups = 1;
    s.relu = pick(0, 1);
    steps.push_back(s);
    return steps.back();
  }

  // A window that fits the map, or false.
  bool window(ProgramStep<T>& s, const ProgramTensor& in, ProgramTensor& out, bool pool) {
    s.kernel_rows = pick(1, 3), s.kernel_cols = pick(1, 3), s.stride_rows = pick(1, 2), s.stride_cols = pick(1, 3);
    s.dilation_rows = pick(1, 2), s.dilation_cols = pick(1, 2);
    s.pad_top = pool ? 0 : pick(0, 2), s.pad_left = pool ? 0 : pick(0, 2);
    if (!pool && pick(0, 1))  // the usual one
      s.kernel_rows = s.kernel_cols = 3, s.stride_rows = s.stride_cols = s.dilation_rows = s.dilation_cols = s.pad_top = s.pad_left = 1;
    const int rows = in.rows + 2 * s.pad_top - s.dilation_rows * (s.kernel_rows - 1) - 1;
    const int cols = in.cols + 2 * s.pad_left - s.dilation_cols * (s.kernel_cols - 1) - 1;
    out = {in.channels, rows / s.stride_rows + 1, cols / s.stride_cols + 1};
    return rows >= 0 && cols >= 0;
  }

  // Maxima of 2 x 2 pixels, where a layer before takes them itself.
  void halve(ProgramStep<T>& s, const ProgramTensor& in, ProgramTensor& out) {
    s.kind = 1, s.kernel_rows = s.kernel_cols = s.stride_rows = s.stride_cols = 2, s.dilation_rows = s.dilation_cols = 1;
    out = {in.channels, in.rows / 2, in.cols / 2};
  }

  void layer(int source, bool whole) {
    const ProgramTensor in = tensors[source];
    ProgramStep<T>& s = step(0, source);
    ProgramTensor out{};
    if (whole) s.kernel_rows = in.rows, s.kernel_cols = in.cols, out = {0, 1, 1};
    else
      while (!window(s, in, out, false)) {}
    s.groups = !whole && in.channels % 2 == 0 && pick(0, 2) == 0 ? 2 : 1;
    out.channels = s.groups * pick(1, 9);
    const int weights = out.channels * (in.channels / s.groups) * s.kernel_rows * s.kernel_cols, percent = pick(0, 3) * 30 + 10;
    where.emplace_back();
    for (int32_t i = 0; i < weights; i++)
      if (pick(1, 100) <= percent) where.back().push_back(i);
    s.where = where.back().data(), s.count = int64_t(where.back().size());
    s.values = draw(size_t(s.count)), s.bias = pick(0, 1) ? draw(size_t(out.channels)) : nullptr;
    for (int t = 0; t < int(tensors.size()); t++)
      if (tensors[t].channels == out.channels && tensors[t].rows == out.rows && tensors[t].cols == out.cols && pick(0, 1)) s.other = t;
    tensors.push_back(out);
  }

  explicit Network(uint32_t seed) : bits(seed) {
    const bool many = pick(0, 4) == 0;  // channels: more than the first cache holds under a tile
    tensors.push_back(many ? ProgramTensor{pick(20, 120), pick(1, 6), pick(1, 12)} : ProgramTensor{pick(1, 6), pick(1, 20), pick(1, 37)});
    const int depth = pick(1, 6);
    for (int i = 0; i < depth; i++) {
      const bool last = pick(0, 7) > 0, even = tensors.back().rows % 2 == 0 && tensors.back().cols % 2 == 0;
      const int source = last ? int(tensors.size()) - 1 : pick(0, int(tensors.size()) - 1), kind = last && even && pick(0, 2) == 0 ? 4 : pick(0, 5);
      if (kind < 4) {
        layer(source, kind == 3 && pick(0, 1));
        continue;
      }
      ProgramStep<T>& s = step(kind == 4 ? pick(1, 2) : 3, source);
      ProgramTensor out = tensors[source];
      if (s.kind == 3) s.scale = pick(0, 1) ? draw(size_t(out.channels)) : nullptr, s.bias = pick(0, 1) ? draw(size_t(out.channels)) : nullptr;
      else {
        while (!window(s, tensors[source], out, true)) {}
        if (tensors[source].rows > 1 && tensors[source].cols > 1 && pick(0, 1)) halve(s, tensors[source], out);
        s.relu = 0;
      }
      tensors.push_back(out);
    }
  }
};

inline size_t size_of(const ProgramTensor& t) { return size_t(t.channels) * t.rows * t.cols; }

// The value of one output of a step, one sample.
template <class T>
double expected(const ProgramStep<T>& s, const ProgramTensor& in, const ProgramTensor& out, const std::vector<double>& x, int o, int row, int col) {
  const auto pixel = [&](int c, int r, int q) { return x[(size_t(c) * in.rows + r) * in.cols + q]; };
  if (s.kind == 3) return (s.scale ? double(s.scale[o]) : 1.0) * pixel(o, row, col) + (s.bias ? double(s.bias[o]) : 0.0);
  double sum = s.kind == 0 && s.bias ? double(s.bias[o]) : 0.0, most = -1e300;
  const int own = in.channels / s.groups, window = s.kernel_rows * s.kernel_cols;
  const auto at = [&](int tap, int c, double weight) {
    const int r = row * s.stride_rows + tap / s.kernel_cols * s.dilation_rows - s.pad_top;
    const int q = col * s.stride_cols + tap % s.kernel_cols * s.dilation_cols - s.pad_left;
    if (r < 0 || r >= in.rows || q < 0 || q >= in.cols) return;
    sum += weight * pixel(c, r, q), most = std::max(most, pixel(c, r, q));
  };
  if (s.kind != 0) {
    for (int tap = 0; tap < window; tap++) at(tap, o, 1.0 / window);
    return s.kind == 1 ? most : sum;
  }
  for (int64_t e = 0; e < s.count; e++) {
    const int channel = s.where[e] / window;
    if (channel / own == o) at(s.where[e] % window, channel % own + o / (out.channels / s.groups) * own, double(s.values[e]));
  }
  return sum;
}

template <class T>
std::vector<double> answer(const Network<T>& n, const T* x) {
  std::vector<std::vector<double>> found{std::vector<double>(x, x + size_of(n.tensors[0]))};
  for (const ProgramStep<T>& s : n.steps) {
    const ProgramTensor &in = n.tensors[s.source], &out = n.tensors[s.target];
    std::vector<double> y;
    for (int o = 0; o < out.channels; o++)
      for (int row = 0; row < out.rows; row++)
        for (int col = 0; col < out.cols; col++) {
          double v = expected(s, in, out, found[s.source], o, row, col);
          if (s.other >= 0) v += found[s.other][y.size()];
          y.push_back(s.relu && v < 0 ? 0.0 : v);
        }
    found.push_back(y);
  }
  return found.back();
}

template <class T>
void check(const Kernels<T>& kernels, ParallelFor parallel, uint32_t seed) {
  Network<T> n(seed);
  const int samples = n.pick(1, 40), threads = n.pick(1, 3);
  const size_t of_x = size_of(n.tensors.front()), of_y = size_of(n.tensors.back());
  const T* x = n.draw(of_x * samples);
  std::vector<double> wanted;
  double scale = 1;
  for (int i = 0; i < samples; i++)
    for (double v : answer(n, x + of_x * i)) wanted.push_back(v), scale = std::max(scale, std::abs(v));
  Traits traits = *kernels.traits;
  traits.cache_bytes = int64_t(4096) << n.pick(0, 8);  // so that some chains of layers run in strips
  for (bool samples_innermost : {false, true}) {
    const Program<T> program(traits, n.tensors.data(), int(n.tensors.size()), n.steps.data(), int(n.steps.size()), samples_innermost);
    for (int time = 0; time < 2; time++) {  // the second time in memory that was used
      std::vector<T> y(of_y * samples, T(7));
      program.run(Runner<T>{kernels, parallel, threads, 1}, x, y.data(), samples);
      for (size_t i = 0; i < y.size(); i++)
        if (!(std::abs(double(y[i]) - wanted[i]) <= 1e-4 * scale)) {
          std::printf("program %u, samples innermost %d, time %d: y[%zu] = %g, expected %g\n", seed, samples_innermost, time, i, double(y[i]), wanted[i]);
          std::exit(1);
        }
    }
  }
}

}  // namespace program_test
