// Drives the kernels with std::thread against plain loops in double precision, for every kernel table of this machine.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "ascending.h"
#include "program_test.h"
#include "stack.h"
#include "tables.h"

using namespace regrow;

namespace {

void parallel_threads(int parts, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int part = 1; part < parts; part++) threads.emplace_back([&body, part] { body(part); });
  body(0);
  for (std::thread& thread : threads) thread.join();
}

std::mt19937 random_bits(1);
int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_bits); }

template <class T>
std::vector<T> random_values(size_t count) {
  std::normal_distribution<double> normal;
  std::vector<T> values(count);
  for (T& value : values) value = T(normal(random_bits));
  return values;
}

struct Case {
  Geometry g;
  int samples;
  std::vector<uint8_t> mask;
  size_t in_size() const { return size_t(g.in_channels) * g.in_rows * g.in_cols * samples; }
  size_t out_size() const { return size_t(g.out_channels) * g.out_rows * g.out_cols * samples; }
};

// `few`: so few samples, and no strides, that lanes may run across columns.
Case random_case(bool few = false) {
  for (;;) {
    Case c;
    Geometry& g = c.g;
    g.groups = pick(1, 2);
    g.in_channels = g.groups * pick(1, 20), g.out_channels = g.groups * pick(1, 12);
    g.in_rows = pick(1, 9), g.in_cols = pick(1, few ? 40 : 11);
    g.kernel_rows = pick(1, 3), g.kernel_cols = pick(1, 3);
    g.stride_rows = few ? 1 : pick(1, 3), g.stride_cols = few ? 1 : pick(1, 3);
    g.pad_top = pick(0, 2), g.pad_left = pick(0, 2);
    g.dilation_rows = pick(1, 2), g.dilation_cols = pick(1, few ? 4 : 2);
    const int room_rows = g.in_rows + 2 * g.pad_top - g.dilation_rows * (g.kernel_rows - 1) - 1;
    const int room_cols = g.in_cols + 2 * g.pad_left - g.dilation_cols * (g.kernel_cols - 1) - 1;
    if (room_rows < 0 || room_cols < 0) continue;
    g.out_rows = room_rows / g.stride_rows + 1, g.out_cols = room_cols / g.stride_cols + 1;
    c.samples = few ? pick(1, 15) : pick(0, 3) ? pick(0, 40) : pick(41, 110);  // both one and several vectors of lanes per matrix tile
    c.mask.resize(size_t(g.out_channels) * (g.in_channels / g.groups) * g.kernel_rows * g.kernel_cols);
    const int percent = pick(0, 4) * 25;
    for (uint8_t& m : c.mask) m = pick(1, 100) <= percent;
    return c;
  }
}

// Output large enough to be written past the caches.
Case large_case() {
  Case c;
  c.g = {1, 66, 1, 64, 64, 64, 64, 3, 3, 1, 1, 1, 1, 1, 1};
  c.samples = 16;
  c.mask.resize(66 * 9);
  for (size_t i = 0; i < c.mask.size(); i += 7) c.mask[i] = 1;
  return c;
}

// LeNet-5's second convolution: its input gradient is cut into three bands each way.
Case unpadded_case() {
  Case c;
  c.g = {3, 4, 1, 12, 12, 8, 8, 5, 5, 1, 1, 0, 0, 1, 1};
  c.samples = 9;
  c.mask.resize(3 * 4 * 25);
  for (size_t i = 0; i < c.mask.size(); i += 3) c.mask[i] = 1;
  return c;
}

void check_bands(const Traits& traits) {
  const Case c = unpadded_case();
  const Plan whole = build_plan(traits, c.g, c.mask.data(), Pass::forward), cut = build_plan(traits, c.g, c.mask.data(), Pass::input_gradient);
  int pixels = 0;
  for (const Stencil& s : cut.stencils) pixels += s.rows * s.cols;
  if (whole.stencils.size() != 1 || cut.stencils.size() != 9 || pixels != 12 * 12) {
    std::printf("%zu stencils forward, %zu backward over %d pixels\n", whole.stencils.size(), cut.stencils.size(), pixels);
    std::exit(1);
  }
}

// Calls visit(weight, input element, output element) for every multiply-add, sample 0.
template <class F>
void for_each_product(const Case& c, F visit) {
  const Geometry& g = c.g;
  const int ins = g.in_channels / g.groups, outs = g.out_channels / g.groups;
  for (int o = 0; o < g.out_channels; o++)
    for (int i = 0; i < ins; i++)
      for (int ky = 0; ky < g.kernel_rows; ky++)
        for (int kx = 0; kx < g.kernel_cols; kx++) {
          const size_t w = ((size_t(o) * ins + i) * g.kernel_rows + ky) * g.kernel_cols + kx;
          if (!c.mask[w]) continue;
          for (int y = 0; y < g.out_rows; y++)
            for (int x = 0; x < g.out_cols; x++) {
              const int row = y * g.stride_rows + ky * g.dilation_rows - g.pad_top, col = x * g.stride_cols + kx * g.dilation_cols - g.pad_left;
              if (row < 0 || row >= g.in_rows || col < 0 || col >= g.in_cols) continue;
              const size_t channel = size_t(o / outs) * ins + i;
              visit(w, ((channel * g.in_rows + row) * g.in_cols + col) * c.samples, ((size_t(o) * g.out_rows + y) * g.out_cols + x) * c.samples);
            }
        }
}

template <class T>
void expect_near(const char* what, const std::vector<T>& actual, const std::vector<double>& expected) {
  for (size_t i = 0; i < actual.size(); i++)
    if (!(std::abs(double(actual[i]) - expected[i]) <= 1e-4 * (1 + std::abs(expected[i])))) {
      std::printf("%s[%zu] = %g, expected %g\n", what, i, double(actual[i]), expected[i]);
      std::exit(1);
    }
}

// Bit for bit: the same table and number of threads repeat themselves.
template <class T>
void expect_same(const char* what, T actual, T expected) {
  if (actual != expected) std::printf("%s: %.9g is not %.9g again\n", what, double(actual), double(expected)), std::exit(1);
}

// The forward plan from rows and columns instead of a mask.
Plan plan_of_columns(const Traits& traits, const Case& c, Few few) {
  std::vector<int64_t> row_begin(1, 0);
  std::vector<int32_t> column;
  const size_t row = c.mask.size() / c.g.out_channels;
  for (size_t i = 0; i < c.mask.size(); i++) {
    if (c.mask[i]) column.push_back(int32_t(i % row));
    if (i % row == row - 1) row_begin.push_back(int64_t(column.size()));
  }
  return build_plan(traits, c.g, Support{row_begin.data(), column.data()}, Pass::forward, few);
}

// Both gradients in one walk, the weights' dense-shaped and of present weights only.
template <class T>
void check_both(const Runner<T>& run, const Plan& plan, const Case& c, const std::vector<T>& x, const std::vector<T>& grad, const std::vector<T>& present,
                const std::vector<uint32_t>& position, const std::vector<double>& dx_ref, const std::vector<double>& dw_ref) {
  const int64_t count = int64_t(position.size());
  std::vector<T> dx(c.in_size(), T(99)), dw(c.mask.size()), again(c.in_size(), T(99)), only_present(position.size(), T(99));
  run.both_gradients(plan, x.data(), grad.data(), present.data(), position.data(), count, dx.data(), dw.data(), c.samples);
  run.both_gradients(plan, x.data(), grad.data(), present.data(), nullptr, count, again.data(), only_present.data(), c.samples);
  expect_near("dx of one walk", dx, dx_ref);
  expect_near("dw of one walk", dw, dw_ref);
  for (size_t i = 0; i < dx.size(); i++) expect_same("dx of one walk", dx[i], again[i]);
  for (size_t i = 0; i < position.size(); i++) expect_same("dw of one walk", dw[position[i]], only_present[i]);
}

template <class T>
void check(const Kernels<T>& kernels, const Case& c, int threads, Few few = {}) {
  const Runner<T> run{kernels, parallel_threads, threads, 0};  // threads even for the smallest work
  const auto x = random_values<T>(c.in_size()), grad = random_values<T>(c.out_size()), weight = random_values<T>(c.mask.size());
  const auto bias = random_values<T>(c.g.out_channels);
  std::vector<double> y_ref(c.out_size()), dx_ref(c.in_size()), dw_ref(c.mask.size()), dbias_ref(c.g.out_channels);
  const size_t channel = size_t(c.g.out_rows) * c.g.out_cols * c.samples;
  for (size_t i = 0; i < y_ref.size(); i++) y_ref[i] = bias[i / channel], dbias_ref[i / channel] += grad[i];
  for_each_product(c, [&](size_t w, size_t in, size_t out) {
    for (int n = 0; n < c.samples; n++) {
      y_ref[out + n] += double(weight[w]) * x[in + n];
      dx_ref[in + n] += double(weight[w]) * grad[out + n];
      dw_ref[w] += double(x[in + n]) * grad[out + n];
    }
  });
  std::vector<uint32_t> position;
  for (uint32_t i = 0; i < c.mask.size(); i++)
    if (c.mask[i]) position.push_back(i);
  std::vector<T> y(c.out_size(), T(99)), dx(c.in_size(), T(99)), dw(c.mask.size()), present(position.size()), dbias(c.g.out_channels, T(99));
  run.gather(weight.data(), position.data(), int64_t(position.size()), present.data());
  const Traits& traits = *kernels.traits;
  const Plan forward = build_plan(traits, c.g, c.mask.data(), Pass::forward, few), backward = build_plan(traits, c.g, c.mask.data(), Pass::input_gradient, few);
  run.forward(forward, x.data(), present.data(), bias.data(), y.data(), c.samples);
  run.forward(backward, grad.data(), present.data(), nullptr, dx.data(), c.samples);
  run.weight_gradient(forward, x.data(), grad.data(), position.data(), int64_t(position.size()), dw.data(), c.samples);
  run.bias_gradient(grad.data(), c.g.out_channels, int64_t(channel), dbias.data());
  if (run.walks_once(backward)) check_both(run, backward, c, x, grad, present, position, dx_ref, dw_ref);
  expect_near("y", y, y_ref);
  expect_near("dx", dx, dx_ref);
  expect_near("dw", dw, dw_ref);
  std::vector<T> again(c.out_size(), T(99)), only_present(position.size(), T(99));
  run.forward(plan_of_columns(traits, c, few), x.data(), present.data(), bias.data(), again.data(), c.samples);
  run.weight_gradient(forward, x.data(), grad.data(), nullptr, int64_t(position.size()), only_present.data(), c.samples);
  for (size_t i = 0; i < y.size(); i++) expect_same("y from columns", y[i], again[i]);
  for (size_t i = 0; i < position.size(); i++) expect_same("dw of present weights", dw[position[i]], only_present[i]);
  expect_near("dbias", dbias, dbias_ref);
}

Case linear_case(int inputs, int outputs, int samples, int per_million = 300000) {
  Case c;
  c.g = {inputs, outputs, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1};
  c.samples = samples;
  c.mask.resize(size_t(inputs) * outputs);
  for (uint8_t& m : c.mask) m = pick(1, 1000000) <= per_million;
  return c;
}

// Ascending lists against the standard library.
void check_ascending() {
  for (int round = 0; round < 200; round++) {
    std::vector<int64_t> a, b;
    const int64_t limit = round % 2 ? 50 : int64_t(1) << 40, step = limit / 25;
    for (int64_t at = pick(0, 3); at < limit; at += 1 + pick(0, 1000) * step / 500) a.push_back(at);
    for (int64_t value : a)
      if (pick(0, 1)) b.push_back(value + pick(0, 1));
    b.erase(std::unique(b.begin(), b.end()), b.end());
    std::vector<int64_t> place(b.size()), both(a.size() + b.size()), expected(both.size());
    find_places(a.data(), int64_t(a.size()), b.data(), int64_t(b.size()), place.data());
    for (size_t i = 0; i < b.size(); i++) {
      const auto found = std::lower_bound(a.begin(), a.end(), b[i]);
      expect_same("place", place[i], found != a.end() && *found == b[i] ? int64_t(found - a.begin()) : int64_t(-1));
    }
    both.resize(size_t(unite(a.data(), int64_t(a.size()), b.data(), int64_t(b.size()), both.data())));
    expected.resize(size_t(std::set_union(a.begin(), a.end(), b.begin(), b.end(), expected.begin()) - expected.begin()));
    if (both != expected) std::printf("union of lists\n"), std::exit(1);
    std::vector<uint8_t> code(size_t(encode_gaps(a.data(), int64_t(a.size()), nullptr)));
    encode_gaps(a.data(), int64_t(a.size()), code.data());
    std::vector<int64_t> again(a.size());
    if (!decode_gaps(code.data(), int64_t(code.size()), limit + step + 1, again.data()) || again != a) std::printf("gaps\n"), std::exit(1);
    if (a.size() && decode_gaps(code.data(), int64_t(code.size()), a.back(), again.data())) std::printf("beyond the limit\n"), std::exit(1);
  }
}

// A linear layer on rows as torch has them gives the same bits as on CHWN features.
template <class T>
void check_rows(const Kernels<T>& kernels, const Case& c, int threads) {
  const Runner<T> run{kernels, parallel_threads, threads, 0};
  const int64_t ins = c.g.in_channels, outs = c.g.out_channels, n = c.samples, count = std::count(c.mask.begin(), c.mask.end(), 1);
  const auto x = random_values<T>(c.in_size()), grad = random_values<T>(c.out_size()), weight = random_values<T>(count), bias = random_values<T>(outs);
  const Plan plan = build_plan(*kernels.traits, c.g, c.mask.data(), Pass::forward);
  std::vector<T> rows(x.size()), grad_rows(grad.size()), y(grad.size()), y_rows(grad.size(), T(99)), dw(count), dw_rows(count);
  kernels.transpose(x.data(), ins, n, rows.data(), 0, 1);
  kernels.transpose(grad.data(), outs, n, grad_rows.data(), 0, 1);
  run.forward(plan, x.data(), weight.data(), bias.data(), y.data(), n);
  run.forward(plan, rows.data(), weight.data(), bias.data(), y_rows.data(), n, Order::rows);
  run.weight_gradient(plan, x.data(), grad.data(), nullptr, count, dw.data(), n);
  run.weight_gradient(plan, rows.data(), grad_rows.data(), nullptr, count, dw_rows.data(), n, Order::rows);
  for (int64_t i = 0; i < outs; i++)
    for (int64_t k = 0; k < n; k++) expect_same("y of rows", y_rows[k * outs + i], y[i * n + k]);
  for (int64_t i = 0; i < count; i++) expect_same("dw of rows", dw_rows[i], dw[i]);
  const Plan transposed = build_plan(*kernels.traits, c.g, c.mask.data(), Pass::input_gradient);
  std::vector<T> dx(x.size()), dx_rows(x.size(), T(99));
  run.both_gradients(transposed, x.data(), grad.data(), weight.data(), nullptr, count, dx.data(), dw.data(), n);
  run.both_gradients(transposed, rows.data(), grad_rows.data(), weight.data(), nullptr, count, dx_rows.data(), dw_rows.data(), n, Order::rows);
  for (int64_t i = 0; i < ins; i++)
    for (int64_t k = 0; k < n; k++) expect_same("dx of rows in one walk", dx_rows[k * ins + i], dx[i * n + k]);
  for (int64_t i = 0; i < count; i++) expect_same("dw of rows in one walk", dw_rows[i], dw[i]);
  std::vector<T> dbias(outs), dbias_rows(outs, T(99));
  run.bias_gradient(grad.data(), outs, n, dbias.data());
  run.bias_gradient(grad_rows.data(), outs, n, dbias_rows.data(), Order::rows);
  for (int64_t i = 0; i < outs; i++) expect_same("dbias of rows", dbias_rows[i], dbias[i]);
}

// An infinity spoils the gradients of those weights that read it, no other: neither where a tile hangs over the map nor beyond its last window.
template <class T>
void check_infinite(const Kernels<T>& kernels, const Geometry& g, Few few = {}) {
  Case c;
  c.g = g, c.samples = few.samples ? few.samples : 5;
  c.mask.assign(size_t(g.out_channels) * g.in_channels * g.kernel_rows * g.kernel_cols, 1);
  auto x = random_values<T>(c.in_size());
  const auto grad = random_values<T>(c.out_size());
  // Of the last channel the last row; where lanes are columns, the last column.
  const size_t row = size_t(g.in_cols) * c.samples;
  const auto infinite = [&](size_t i) {
    return few.samples ? i >= x.size() - row * g.in_rows && i % row >= row - few.samples : i >= x.size() - row;
  };
  for (size_t i = 0; i < x.size(); i++)
    if (infinite(i)) x[i] = std::numeric_limits<T>::infinity();
  std::vector<bool> spoilt(c.mask.size());
  for_each_product(c, [&](size_t w, size_t in, size_t) { spoilt[w] = spoilt[w] || infinite(in); });
  std::vector<T> dw(c.mask.size());
  const Runner<T> run{kernels, parallel_threads, 2, 0};
  if (few.samples && !runs_across(*kernels.traits, g, few)) std::printf("%s: samples are lanes of a small map\n", kernels.traits->name), std::exit(1);
  run.weight_gradient(build_plan(*kernels.traits, g, c.mask.data(), Pass::forward, few), x.data(), grad.data(), nullptr, int64_t(dw.size()), dw.data(), c.samples);
  for (size_t w = 0; w < dw.size(); w++)
    if (std::isfinite(dw[w]) == spoilt[w]) std::printf("gradient %g of weight %zu beside an infinity\n", double(dw[w]), w), std::exit(1);
}

// One layer of a stack with all its memory.
template <class T>
struct Level {
  Case c;
  Plan forward, backward;
  std::vector<uint32_t> position;
  std::vector<T> weight = random_values<T>(c.mask.size()), bias = random_values<T>(c.g.out_channels);
  std::vector<T> present, y, dx, dw, dbias;

  Level(const Traits& traits, const Case& given)
      : c(given), forward(build_plan(traits, c.g, c.mask.data(), Pass::forward)), backward(build_plan(traits, c.g, c.mask.data(), Pass::input_gradient)), y(given.out_size()), dx(given.in_size()), dw(given.mask.size()), dbias(given.g.out_channels) {
    for (uint32_t i = 0; i < c.mask.size(); i++)
      if (c.mask[i]) position.push_back(i);
    present.resize(position.size());
  }
  StackLayer<T> record() {
    const int64_t count = int64_t(position.size());
    return {&forward,      &backward,   &forward,       position.data(), position.data(), count,     count,       c.g.out_channels,
            weight.data(), bias.data(), present.data(), y.data(),        dx.data(),       dw.data(), dbias.data()};
  }
};

// Two layers in one call against a plain computation in double precision.
template <class T>
void check_stack(const Kernels<T>& kernels, int samples, int threads) {
  const Runner<T> run{kernels, parallel_threads, threads, 0};
  Level<T> one(*kernels.traits, linear_case(pick(1, 30), pick(1, 20), samples)), two(*kernels.traits, linear_case(one.c.g.out_channels, pick(1, 10), samples));
  const auto x = random_values<T>(one.c.in_size()), grad = random_values<T>(two.c.out_size());
  StackLayer<T> layers[] = {one.record(), two.record()};
  stack_forward(run, layers, 2, x.data(), samples);
  stack_backward(run, layers, 2, x.data(), grad.data(), samples);
  std::vector<double> hidden(one.c.out_size()), y(two.c.out_size()), back(hidden.size()), dx(one.c.in_size()), dw1(one.dw.size()), dw2(two.dw.size());
  for (size_t i = 0; i < hidden.size(); i++) hidden[i] = one.bias[i / samples];
  for (size_t i = 0; i < y.size(); i++) y[i] = two.bias[i / samples];
  auto each = [&](const Level<T>& level, auto product) {
    for_each_product(level.c, [&](size_t w, size_t in, size_t out) {
      for (int n = 0; n < samples; n++) product(w, in + n, out + n);
    });
  };
  each(one, [&](size_t w, size_t in, size_t out) { hidden[out] += double(one.weight[w]) * x[in]; });
  for (double& value : hidden) value = std::max(value, 0.0);
  each(two, [&](size_t w, size_t in, size_t out) {
    y[out] += double(two.weight[w]) * hidden[in];
    back[in] += double(two.weight[w]) * grad[out];
    dw2[w] += hidden[in] * grad[out];
  });
  for (size_t i = 0; i < back.size(); i++) back[i] = hidden[i] > 0 ? back[i] : 0;
  each(one, [&](size_t w, size_t in, size_t out) {
    dx[in] += double(one.weight[w]) * back[out];
    dw1[w] += double(x[in]) * back[out];
  });
  expect_near("stack y", two.y, y);
  expect_near("stack dw2", two.dw, dw2);
  expect_near("stack dw1", one.dw, dw1);
  expect_near("stack dx", one.dx, dx);
  std::vector<double> dbias1(one.dbias.size()), dbias2(two.dbias.size());
  for (size_t i = 0; i < back.size(); i++) dbias1[i / samples] += back[i];
  for (size_t i = 0; i < grad.size(); i++) dbias2[i / samples] += grad[i];
  expect_near("stack dbias1", one.dbias, dbias1);
  expect_near("stack dbias2", two.dbias, dbias2);
}

// The operations between layers touch every element once; sanitizers watch the borders.
template <class T>
void check_glue(const Kernels<T>& k) {
  const Pool pool{3, 7, 6, 4, 3, 3, 3, 2, 2, 1, 1, 1, 1, 0};
  const int64_t lanes = 13, in = 3 * 7 * 6 * lanes, out = 3 * 4 * 3 * lanes, size = in / 3;
  const auto x = random_values<T>(in), grad = random_values<T>(out), g = random_values<T>(in), ones = std::vector<T>(3, T(1));
  std::vector<T> y(out), dx(in), mean(3), variance(3), z(in), dweight(3), dbias(3);
  std::vector<uint8_t> winner(out);
  const int parts = 2;
  parallel_threads(parts, [&](int part) {
    k.max_pool(pool, x.data(), y.data(), winner.data(), lanes, part, parts);
    k.max_pool_backward(pool, grad.data(), winner.data(), dx.data(), lanes, part, parts);
    k.channel_statistics(x.data(), 3, size, mean.data(), variance.data(), part, parts);
    k.scale_shift(x.data(), ones.data(), mean.data(), z.data(), 3, size, true, part, parts);
  });
  parallel_threads(parts, [&](int part) {
    k.norm_backward(x.data(), z.data(), g.data(), mean.data(), ones.data(), nullptr, dx.data(), dweight.data(), dbias.data(), 3, size, true, part, parts);
  });
  double total = 0, passed = 0;
  for (T v : grad) total += v;
  std::vector<T> pooled(in);
  k.max_pool_backward(pool, grad.data(), winner.data(), pooled.data(), lanes, 0, 1);
  for (T v : pooled) passed += v;
  expect_near<double>("pooled gradient", {passed}, {total});
}

// Max pooling against the plain definition: windows that tile the map, overlap, hang over its border; many and few lanes.
template <class T>
void check_pool(const Kernels<T>& k, const Pool& s, int64_t lanes) {
  const int64_t in = (int64_t)s.channels * s.in_rows * s.in_cols * lanes, out = (int64_t)s.channels * s.out_rows * s.out_cols * lanes;
  auto x = random_values<T>(in);
  const auto grad = random_values<T>(out);
  for (int64_t i = 0; i < in; i++) {
    if (i % 3 == 0) x[i] = T(i % 2 ? 0.5 : -2);  // ties: the first wins
    if (i % 11 == 0) x[i] = std::numeric_limits<T>::quiet_NaN();
  }
  std::vector<T> y(out), dx(in, T(7)), most(out), spread(in);
  std::vector<uint8_t> winner(out);
  for (int64_t o = 0; o < out; o++) {
    const int64_t n = o % lanes, col = o / lanes % s.out_cols, row = o / lanes / s.out_cols % s.out_rows, c = o / lanes / s.out_cols / s.out_rows;
    int64_t best = -1;
    for (int ky = 0; ky < s.kernel_rows; ky++)
      for (int kx = 0; kx < s.kernel_cols; kx++) {
        const int64_t r = row * s.stride_rows - s.pad_rows + ky * s.dilation_rows, q = col * s.stride_cols - s.pad_cols + kx * s.dilation_cols;
        if (r < 0 || r >= s.in_rows || q < 0 || q >= s.in_cols) continue;
        const int64_t i = ((c * s.in_rows + r) * s.in_cols + q) * lanes + n;
        if (best < 0 || x[i] > x[best] || (std::isnan(x[i]) && !std::isnan(x[best]))) best = i;
      }
    const bool dead = s.rectified && x[best] <= 0;
    most[o] = dead ? T(0) : x[best];
    if (!dead) spread[best] += grad[o];
  }
  k.max_pool(s, x.data(), y.data(), winner.data(), lanes, 0, 1);
  k.max_pool_backward(s, grad.data(), winner.data(), dx.data(), lanes, 0, 1);
  for (int64_t o = 0; o < out; o++)
    if (std::isnan(most[o]) && std::isnan(y[o])) most[o] = y[o] = T(0);  // NaN equals nothing
  expect_near("pool y", y, std::vector<double>(most.begin(), most.end()));
  expect_near("pool dx", dx, std::vector<double>(spread.begin(), spread.end()));
}

template <class T>
void check_pools(const Kernels<T>& k) {
  for (const int64_t lanes : {1, 5, 8, 13, 16})
    for (const int rectified : {0, 1}) {
      check_pool(k, {2, 6, 4, 3, 2, 2, 2, 2, 2, 0, 0, 1, 1, rectified}, lanes);
      check_pool(k, {2, 7, 5, 3, 2, 2, 2, 2, 2, 0, 0, 1, 1, rectified}, lanes);
      check_pool(k, {3, 7, 6, 4, 3, 3, 3, 2, 2, 1, 1, 1, 1, rectified}, lanes);
      check_pool(k, {1, 9, 8, 5, 4, 3, 3, 1, 1, 0, 0, 2, 2, rectified}, lanes);
    }
}

// The gradient of batch norm with a ReLU behind it, which passes where the output is NaN; channels of whole vectors and a rest.
template <class T>
void check_norm(const Kernels<T>& k, bool training) {
  const int64_t channels = 5, size = 75;
  const auto x = random_values<T>(channels * size), g = random_values<T>(x.size()), mean = random_values<T>(channels), weight = random_values<T>(channels);
  const std::vector<T> invstd(channels, T(0.5));
  auto y = random_values<T>(x.size());
  for (size_t i = 0; i < y.size(); i += 3) y[i] = T(i % 2 ? 0 : NAN);
  std::vector<T> dx(x.size()), dweight(channels), dbias(channels);
  parallel_threads(2, [&](int part) {
    k.norm_backward(x.data(), y.data(), g.data(), mean.data(), invstd.data(), weight.data(), dx.data(), dweight.data(), dbias.data(), channels, size,
                    training, part, 2);
  });
  std::vector<double> passed(x.size()), dx_ref(x.size()), dweight_ref(channels), dbias_ref(channels);
  for (size_t i = 0; i < x.size(); i++) {
    const size_t c = i / size;
    passed[i] = y[i] <= 0 ? 0 : double(g[i]);
    dbias_ref[c] += passed[i], dweight_ref[c] += passed[i] * (double(x[i]) - mean[c]) * invstd[c];
  }
  for (size_t i = 0; i < x.size(); i++) {
    const size_t c = i / size;
    const double centred = training ? (dbias_ref[c] + dweight_ref[c] * (double(x[i]) - mean[c]) * invstd[c]) / size : 0;
    dx_ref[i] = (passed[i] - centred) * invstd[c] * weight[c];
  }
  expect_near("norm dx", dx, dx_ref);
  expect_near("norm dweight", dweight, dweight_ref);
  expect_near("norm dbias", dbias, dbias_ref);
}

// Images of an odd number of pixels and samples; masks over an odd number of weights.
template <class T>
void check_images(const Kernels<T>& k) {
  const int64_t samples = 13, channels = 2, pixels = 15, size = channels * pixels;
  std::vector<uint8_t> images(samples * size);
  for (uint8_t& value : images) value = uint8_t(pick(0, 255));
  const std::vector<T> scale{T(0.5), T(0.25)}, shift{T(-1), T(2)};
  std::vector<int64_t> order(2 * samples);  // some twice, some never
  for (int64_t& n : order) n = pick(0, samples - 1);
  std::vector<T> y(order.size() * size), innermost(y.size());
  ImageBatch<T> batch{images.data(), order.data(), int64_t(order.size()), channels, pixels, scale.data(), shift.data(), y.data(), 0};
  parallel_threads(2, [&](int part) { k.load_images(batch, part, 2); });
  batch.y = innermost.data(), batch.samples_innermost = 1;
  parallel_threads(2, [&](int part) { k.load_images(batch, part, 2); });
  std::vector<double> expected(y.size()), transposed(y.size());
  for (int64_t i = 0; i < size; i++)
    for (size_t n = 0; n < order.size(); n++)
      transposed[i * order.size() + n] = expected[n * size + i] = images[order[n] * size + i] * scale[i / pixels] + shift[i / pixels];
  expect_near("images, samples innermost", innermost, transposed);
  expect_near("images", y, expected);
  std::vector<uint8_t> mask(y.size());
  for (size_t i = 0; i < mask.size(); i++) mask[i] = pick(0, 1), expected[i] = mask[i] ? expected[i] : 0;
  parallel_threads(2, [&](int part) { k.keep_present(y.data(), mask.data(), share(int64_t(y.size()), part, 2)); });
  expect_near("masked", y, expected);
}

// Exactly, in blocks of eight by eight and beside them.
template <class T>
void check_transpose(const Kernels<T>& k, int64_t rows, int64_t cols) {
  const auto x = random_values<T>(rows * cols);
  std::vector<T> y(x.size(), T(99));
  parallel_threads(2, [&](int part) { k.transpose(x.data(), rows, cols, y.data(), part, 2); });
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < cols; c++)
      if (y[c * rows + r] != x[r * cols + c]) std::printf("transpose of %d x %d differs at %d, %d\n", int(rows), int(cols), int(r), int(c)), std::exit(1);
}

template <class T>
void check_channels_last(const Kernels<T>& k, int64_t channels, int64_t pixels, int64_t samples) {
  const auto x = random_values<T>(channels * pixels * samples);
  std::vector<T> y(x.size(), T(99));
  parallel_threads(2, [&](int part) { k.channels_last(x.data(), channels, pixels, samples, y.data(), part, 2); });
  for (int64_t i = 0; i < int64_t(x.size()); i++) {
    const int64_t c = i / samples / pixels, p = i / samples % pixels, n = i % samples;
    expect_same("channels_last", y[(n * pixels + p) * channels + c], x[i]);
  }
}

template <class T>
void check_dropout(const Kernels<T>& k, int64_t size) {
  const auto x = random_values<T>(size);
  std::vector<uint8_t> keep(size);
  for (uint8_t& kept : keep) kept = pick(0, 1);
  std::vector<T> y(size, T(99));
  parallel_threads(2, [&](int part) { k.scale_kept(x.data(), keep.data(), T(1.25), y.data(), share(size, part, 2)); });
  std::vector<double> expected(size);
  for (int64_t i = 0; i < size; i++) expected[i] = keep[i] ? 1.25 * x[i] : 0;
  expect_near("dropout", y, expected);
}

// The places of every third weight or so: those between must stay as they are.
std::vector<uint32_t> some_of(size_t size) {
  std::vector<uint32_t> index;
  for (uint32_t i = 0; i < size; i++)
    if (pick(0, 2) == 0) index.push_back(i);
  return index;
}

template <class T>
std::vector<double> in_double(const std::vector<T>& values) {
  return {values.begin(), values.end()};
}

struct SgdOptions {
  double momentum, dampening, weight_decay;
  int nesterov, maximize;
};

// Three steps from the first on.
template <class T>
void check_sgd(const Kernels<T>& k, const SgdOptions& o, size_t size) {
  auto weight = random_values<T>(size), velocity = random_values<T>(size);
  auto w = in_double(weight), v = in_double(velocity);
  const auto index = some_of(size);
  for (int time = 0; time < 3; time++) {
    const auto grad = random_values<T>(size);
    const SgdStep<T> step{0.1, o.momentum, o.dampening, o.weight_decay, o.nesterov, o.maximize, time == 0, weight.data(), grad.data(),
                          o.momentum != 0 ? velocity.data() : nullptr, index.data(), int64_t(index.size())};
    parallel_threads(2, [&](int part) { k.sgd_step(step, share(step.count, part, 2)); });
    for (uint32_t i : index) {
      const double g = (o.maximize ? -1 : 1) * double(grad[i]) + o.weight_decay * w[i];
      if (o.momentum != 0) v[i] = time == 0 ? g : o.momentum * v[i] + (1 - o.dampening) * g;
      w[i] -= 0.1 * (o.momentum == 0 ? g : o.nesterov ? g + o.momentum * v[i] : v[i]);
    }
  }
  expect_near("sgd weight", weight, w);
  expect_near("sgd velocity", velocity, v);
}

template <class T>
void check_adamw(const Kernels<T>& k, int maximize, size_t size) {
  const double lr = 0.01, beta1 = 0.9, beta2 = 0.99, eps = 1e-6, decay = 0.1;
  auto weight = random_values<T>(size);
  std::vector<T> first(size), second(size);
  auto w = in_double(weight), m = in_double(first), v = in_double(second);
  const auto index = some_of(size);
  for (int time = 1; time <= 3; time++) {
    const auto grad = random_values<T>(size);
    const AdamWStep<T> step{lr,           beta1,        beta2, eps, decay, double(time), maximize, weight.data(), grad.data(), first.data(),
                            second.data(), index.data(), int64_t(index.size())};
    parallel_threads(2, [&](int part) { k.adamw_step(step, share(step.count, part, 2)); });
    for (uint32_t i : index) {
      const double g = maximize ? -double(grad[i]) : double(grad[i]);
      m[i] = beta1 * m[i] + (1 - beta1) * g, v[i] = beta2 * v[i] + (1 - beta2) * g * g;
      const double mean = m[i] / (1 - std::pow(beta1, time)), variance = v[i] / (1 - std::pow(beta2, time));
      w[i] -= lr * decay * w[i] + lr * mean / (std::sqrt(variance) + eps);
    }
  }
  expect_near("adamw weight", weight, w);
  expect_near("adamw first", first, m);
  expect_near("adamw second", second, v);
}

// Fewer weights than are fetched ahead, about as many, and more.
template <class T>
void check_steps(const Kernels<T>& k) {
  const SgdOptions options[] = {{0, 0, 0, 0, 0}, {0.9, 0, 0, 0, 0}, {0.9, 0.1, 0.01, 0, 1}, {0.9, 0, 0.01, 1, 0}};
  for (size_t size : {1, 7, 100, 211, 1001}) {
    for (const SgdOptions& o : options) check_sgd(k, o, size);
    for (int maximize : {0, 1}) check_adamw(k, maximize, size);
  }
}

// Against the standard library's twister, over several blocks, starting at odd places too.
template <class T>
void check_bernoulli(const Kernels<T>& k) {
  const uint32_t seed = 7;
  Twister twister;
  twister.next = Twister::kSize;
  twister.state[0] = seed;
  for (uint32_t i = 1; i < uint32_t(Twister::kSize); i++) twister.state[i] = 1812433253u * (twister.state[i - 1] ^ (twister.state[i - 1] >> 30)) + i;
  std::mt19937 standard(seed);
  for (int count : {1, 311, 312, 313, 2000, 3}) {
    std::vector<uint8_t> keep(count);
    k.bernoulli(twister, 0.3, keep.data(), count);
    for (int i = 0; i < count; i++) {
      const uint64_t high = standard() & 0x1fffffu, low = standard();
      if (keep[i] != (double((high << 32) | low) / 9007199254740992.0 < 0.3)) std::printf("bernoulli[%d] of %d differs\n", i, count), std::exit(1);
    }
    if (twister.next < Twister::kSize) twister.next++, standard();  // on to an odd place
  }
}

template <class T>
void check_linear(const Kernels<T>& kernels, const Case& c, int threads) {
  check(kernels, c, threads);
  check_rows(kernels, c, threads);
}

template <class T>
void check_all(const char* name, const Kernels<T>& kernels, int cases) {
  check_bands(*kernels.traits);
  for (int i = 0; i < cases; i++) check(kernels, random_case(), 1 + i % 3);
  for (int i = 0; i < cases; i++) program_test::check(kernels, parallel_threads, uint32_t(i));
  check(kernels, large_case(), 2);
  check(kernels, unpadded_case(), 2);
  for (int samples : {1, 8, 13, 100, 300, 9001}) check_rows(kernels, linear_case(pick(1, samples > 999 ? 3 : 450), pick(1, 70), samples), 1 + samples % 3);
  for (int samples : {1, 37}) {
    check_linear(kernels, linear_case(400, 300, samples, 600000), 2);   // many input blocks
    check_linear(kernels, linear_case(3000, 90, samples, 2000), 2);     // thin: one block
    check_linear(kernels, linear_case(70001, 11, samples, 500), 3);     // and several
    check_linear(kernels, linear_case(9, 70001, samples, 500), 3);
  }
  for (int samples : {1, 8, 13, 100}) check_stack(kernels, samples, 1 + samples % 3);
  check_infinite(kernels, {2, 3, 1, 12, 12, 5, 5, 3, 3, 2, 2, 0, 0, 1, 1});
  check_infinite(kernels, {2, 3, 1, 13, 11, 13, 11, 3, 3, 1, 1, 1, 1, 1, 1});
  const int lanes = kernels.traits->vector_bytes / int(sizeof(T));
  int across = 0;
  for (int i = 0; i < cases; i++) {
    const Case c = random_case(true);
    const Few few{c.samples, lanes};
    check(kernels, c, 1 + i % 3, few);
    for (const Stencil& s : build_plan(*kernels.traits, c.g, c.mask.data(), Pass::forward, few).stencils) across += s.across != 0;
  }
  if (!across) std::printf("%s: no layer had columns as lanes\n", name), std::exit(1);
  check_infinite(kernels, {2, 3, 1, 12, 12, 10, 10, 3, 3, 1, 1, 0, 0, 1, 1}, Few{1, lanes});
  check_infinite(kernels, {2, 3, 1, 13, 11, 13, 11, 3, 3, 1, 1, 1, 1, 1, 1}, Few{1, lanes});
  check_glue(kernels);
  check_pools(kernels);
  for (bool training : {true, false}) check_norm(kernels, training);
  check_images(kernels);
  for (int64_t rows : {1, 7, 8, 16, 21, 64})
    for (int64_t cols : {1, 8, 9, 16, 35}) check_transpose(kernels, rows, cols);
  for (int64_t channels : {1, 16, 19})
    for (int64_t samples : {1, 16, 37}) check_channels_last(kernels, channels, 6, samples);
  for (int64_t size : {1, 15, 1003}) check_dropout(kernels, size);
  check_steps(kernels);
  check_bernoulli(kernels);
  std::printf("%s: %d random layers agree\n", name, cases);
}

}  // namespace

int main(int argc, char** argv) {
  const int cases = argc > 1 ? std::atoi(argv[1]) : 150;
  check_ascending();
  for (const Kernels<float>* table : tables()) check_all(table->traits->name, *table, cases);
  check_all("double", *double_table(), cases);
}
