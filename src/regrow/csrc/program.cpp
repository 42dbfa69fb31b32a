#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <stdexcept>
#include <tuple>

#include "planned.h"

namespace regrow {
namespace {

constexpr int64_t kSlack = 4096;  // bytes behind the last plane that a tile may read
constexpr int kStripRows = 6;      // of a map, with those that windows reach beyond a strip
constexpr int kFewVectors = 4;    // of a tile: storing its sums would cost more than it gains
// In multiply-adds out of L1, fitted on Zen 4: what one out of L2 costs more, what a vector of sums costs to store and load again.
constexpr double kFar = 0.8, kAgain = 4;

int64_t rounded_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

template <class T>
T* zeros(int64_t count) {
  const size_t bytes = size_t(rounded_up(count * int64_t(sizeof(T)) + kSlack, 64));
  T* memory = static_cast<T*>(std::aligned_alloc(64, bytes));
  if (!memory) throw std::bad_alloc();
  std::memset(static_cast<void*>(memory), 0, bytes);
  return memory;
}

// How far a window reaches beyond the map behind its last row or column.
int beyond(int outputs, int stride, int kernel, int dilation, int pad, int size) {
  return std::max(0, (outputs - 1) * stride + (kernel - 1) * dilation - pad - (size - 1));
}

}  // namespace

template <class T>
Program<T>::Program(const Traits& traits, const ProgramTensor* tensors, int tensor_count, const ProgramStep<T>* steps, int step_count,
                    bool samples_innermost)
    : lanes_(traits.vector_bytes / int(sizeof(T))),
      innermost_(samples_innermost ? lanes_ : 1),
      first_cache_(traits.first_cache_bytes),
      second_cache_(traits.cache_bytes) {
  for (int i = 0; i < tensor_count; i++) add_form(tensors[i]);
  std::vector<const ProgramStep<T>*> sources;
  for (int i = 0; i < step_count; i++) {
    const ProgramStep<T>& step = steps[i];
    if (step.kind == int(Kind::layer)) {
      add_layer(step);
    } else {
      uses_.push_back({step.source, step.other, step.target});
      tasks_.push_back({});
    }
    sources.resize(tasks_.size(), nullptr);
    sources.back() = &step;
    Task<T>& task = tasks_.back();
    task.kind = Kind(step.kind);
    task.kernel_rows = step.kernel_rows, task.kernel_cols = step.kernel_cols;
    task.dilation_rows = step.dilation_rows, task.dilation_cols = step.dilation_cols;
    const bool was_split = uses_.back().in != step.source;
    task.stride_rows = was_split ? 1 : step.stride_rows, task.stride_cols = was_split ? 1 : step.stride_cols;
    task.pad_top = was_split ? 0 : step.pad_top, task.pad_left = was_split ? 0 : step.pad_left;
    task.relu = step.relu != 0;
    task.rows = forms_[step.target].size.rows, task.cols = forms_[step.target].size.cols;
    task.pooled = pools(steps, step_count, i);
    if (task.pooled) uses_.back().out = steps[++i].target;
  }
  place_all(sources);
}

template <class T>
Program<T>::~Program() {
  for (T* arena : arenas_) std::free(arena);
  for (T* keep : keeps_) std::free(keep);
}

template <class T>
int Program<T>::add_form(ProgramTensor size) {
  forms_.push_back({size, {}, {}});
  return int(forms_.size()) - 1;
}

// Pixels that are lanes must be neighbours: a layer with a stride reads maps that were split by the stride's residues.
template <class T>
void Program<T>::add_layer(const ProgramStep<T>& step) {
  const ProgramTensor in = forms_[step.source].size, out = forms_[step.target].size;
  const bool split = innermost_ == 1 && (step.stride_rows > 1 || step.stride_cols > 1) && out.rows * out.cols > 1;
  int source = step.source;
  if (split) {
    const int reach_rows = (step.kernel_rows - 1) * step.dilation_rows, reach_cols = (step.kernel_cols - 1) * step.dilation_cols;
    Task<T> task{};
    task.kind = Kind::split;
    task.stride_rows = step.stride_rows, task.stride_cols = step.stride_cols;
    task.pad_top = step.pad_top, task.pad_left = step.pad_left;
    task.phase_rows = std::min(step.stride_rows, reach_rows + 1), task.phase_cols = std::min(step.stride_cols, reach_cols + 1);
    source = add_form({in.channels * task.phase_rows * task.phase_cols, out.rows + reach_rows / step.stride_rows,
                       out.cols + reach_cols / step.stride_cols});
    task.rows = forms_[source].size.rows, task.cols = forms_[source].size.cols;
    tasks_.push_back(task);
    uses_.push_back({step.source, -1, source});
  } else {
    note_border(step.source, step, out);
  }
  tasks_.push_back({});
  uses_.push_back({source, step.other, step.target});
}

// Is step i a layer followed by maxima of 2 x 2 pixels, which nobody else reads? They are taken in registers.
template <class T>
bool Program<T>::pools(const ProgramStep<T>* steps, int count, int i) const {
  if (innermost_ == 1 || steps[i].kind != int(Kind::layer) || i + 1 == count) return false;
  const ProgramStep<T>& next = steps[i + 1];
  const int map = steps[i].target;
  for (int j = 0; j < count; j++)
    if ((j != i + 1 && steps[j].source == map) || steps[j].other == map) return false;
  return next.kind == int(Kind::max_pool) && next.source == map && next.kernel_rows == 2 && next.kernel_cols == 2 && next.stride_rows == 2 &&
         next.stride_cols == 2 && next.pad_top == 0 && next.pad_left == 0 && next.dilation_rows == 1 && next.dilation_cols == 1 &&
         forms_[map].size.rows % 2 == 0 && forms_[map].size.cols % 2 == 0;
}

template <class T>
void Program<T>::note_border(int tensor, const ProgramStep<T>& step, const ProgramTensor& out) {
  Form& form = forms_[tensor];
  Border& b = form.border;
  b.top = std::max(b.top, step.pad_top), b.left = std::max(b.left, step.pad_left);
  b.bottom = std::max(b.bottom, beyond(out.rows, step.stride_rows, step.kernel_rows, step.dilation_rows, step.pad_top, form.size.rows));
  b.right = std::max(b.right, beyond(out.cols, step.stride_cols, step.kernel_cols, step.dilation_cols, step.pad_left, form.size.cols));
}

template <class T>
void Program<T>::shape_plane(Form& form) const {
  const Border& b = form.border;
  Site& p = form.place;
  const int64_t gap = std::max(int64_t(b.top) * p.pitch + b.left, int64_t(b.bottom) * p.pitch + b.right);
  const int64_t inside = int64_t(p.rows - 1) * p.pitch + p.cols;
  if (innermost_ > 1) {
    p.base = gap * innermost_;
    // Odd: a power of two would send the same pixel of all channels to a few sets of L1.
    p.plane = ((gap + inside + (p.pitch - p.cols)) | 1) * innermost_;
  } else if (inside == 1 && gap == 0) {
    p.base = 0, p.plane = 1;
  } else {
    p.base = rounded_up(gap, lanes_);
    p.plane = p.base + rounded_up(inside, lanes_);
  }
}

// Where the chain of layers ends that begins at task `first`: each reads the one before, and the maps between them do not stay in L2, but
// strips of them do.
template <class T>
int Program<T>::chain_end(int first) const {
  const auto row_bytes = [&](int tensor) {
    const ProgramTensor& size = forms_[tensor].size;
    return int64_t(size.channels) * (size.cols + 2) * innermost_ * int64_t(sizeof(T));
  };
  int64_t strips = kStripRows * row_bytes(uses_[first].in);
  int next = first + 1;
  for (; innermost_ > 1 && next < int(tasks_.size()); next++) {
    const Task<T>&before = tasks_[next - 1], &task = tasks_[next];
    const int between = uses_[next].in;
    strips += kStripRows * row_bytes(between);
    const bool reads = before.kind == Kind::layer && task.kind == Kind::layer && !before.pooled && between == uses_[next - 1].out;
    bool inside = false;  // is what it adds made in the chain?
    for (int i = first; i < next; i++) inside = inside || uses_[next].other == uses_[i].out;
    if (!reads || inside || row_bytes(between) * before.rows < second_cache_ / 2 || strips > second_cache_) break;
  }
  return next;
}

// The order of a chain's rows: before each strip of the last task as many of those before as it reads.
template <class T>
void Program<T>::order_chain(int first, int end) {
  std::vector<int> done(size_t(end - first), 0), need(done.size());
  const int rows = tasks_[size_t(end) - 1].rows, tile = std::max(1, tasks_[size_t(end) - 1].tile_rows);
  const int height = end - first == 1 ? rows : int(rounded_up(kStripRows / 2, tile));
  for (int until = std::min(height, rows);; until = std::min(until + height, rows)) {
    need.back() = until;
    for (int i = end - 1; i > first; i--) {
      const Task<T>&task = tasks_[i], &before = tasks_[i - 1];
      const int last = (need[i - first] - 1) * task.stride_rows + (task.kernel_rows - 1) * task.dilation_rows - task.pad_top + 1;
      need[i - first - 1] = until == rows ? before.rows : std::min(int(rounded_up(std::max(last, 1), before.tile_rows)), before.rows);
    }
    for (int i = first; i < end; i++) {
      int& so_far = done[i - first];
      if (need[i - first] > so_far) order_.push_back({i, {so_far, need[i - first]}});
      so_far = std::max(so_far, need[i - first]);
    }
    if (until == rows) return;
  }
}

// Tensors of one form whose lives do not meet share a place: their gaps are the same.
template <class T>
void Program<T>::place_all(const std::vector<const ProgramStep<T>*>& sources) {
  std::map<int, int> border_of_width;
  for (const Form& f : forms_) border_of_width[f.size.cols] = std::max({border_of_width[f.size.cols], f.border.left, f.border.right});
  for (Form& f : forms_) {
    f.place = {0, 0, f.size.channels, f.size.rows, f.size.cols, f.size.cols + border_of_width[f.size.cols]};
    shape_plane(f);
  }
  const int last_step = int(tasks_.size());
  std::vector<int> last_use(forms_.size(), -1);
  for (int i = 0; i < last_step; i++)
    for (int tensor : {uses_[i].in, uses_[i].other})
      if (tensor >= 0) last_use[tensor] = i;
  last_use[uses_.back().out] = last_step;
  std::map<std::tuple<int64_t, int64_t, int, int, int, int>, std::vector<int64_t>> free_places;
  const auto key = [](const Site& p, int64_t base) { return std::make_tuple(base, p.plane, p.channels, p.rows, p.cols, p.pitch); };
  std::vector<int64_t> within(forms_.size());
  for (size_t t = 0; t < forms_.size(); t++) within[t] = forms_[t].place.base;
  const auto settle = [&](int tensor) {
    Site& p = forms_[tensor].place;
    auto& spare = free_places[key(p, within[tensor])];
    int64_t start = size_;
    if (spare.empty()) {
      // Vectors of pixels end up to a vector beyond the last gap, where nobody else may write.
      size_ = rounded_up(size_ + p.plane * p.channels + within[tensor] + lanes_, lanes_);
    } else {
      start = spare.back();
      spare.pop_back();
    }
    p.base = start + within[tensor];
  };
  settle(0);
  std::vector<int> chains{0};
  while (chains.back() < last_step) {
    const int first = chains.back(), end = chain_end(first);
    for (int i = first; i < end; i++) settle(uses_[i].out);
    for (size_t tensor = 0; tensor < forms_.size(); tensor++)
      if (last_use[tensor] >= first && last_use[tensor] < end)
        free_places[key(forms_[tensor].place, within[tensor])].push_back(forms_[tensor].place.base - within[tensor]);
    chains.push_back(end);
  }
  if (size_ >= int64_t(1) << 31) throw std::length_error("offsets have 32 bits");
  for (int i = 0; i < last_step; i++) {
    Task<T>& task = tasks_[i];
    task.innermost = innermost_;
    task.in = forms_[uses_[i].in].place, task.out = forms_[uses_[i].out].place;
    task.has_other = uses_[i].other >= 0;
    if (task.has_other) task.other = forms_[uses_[i].other].place;
    task.by_place = task.rows > 1;
    if (task.kind == Kind::split) continue;
    const auto kept = [&](const T* from, int64_t count) -> const T* {
      if (!from) return nullptr;
      numbers_.emplace_back(from, from + count);
      return numbers_.back().data();
    };
    task.bias = kept(sources[i]->bias, task.out.channels), task.scale = kept(sources[i]->scale, task.out.channels);
    if (task.kind != Kind::layer) continue;
    const std::vector<int> channels = list_taps(task, *sources[i]);
    choose_tile(task);
    if (task.blocks > 1) block_taps(task, channels);
    if (innermost_ == 1) keep_pixels(task);
  }
  for (size_t i = 1; i < chains.size(); i++) order_chain(chains[i - 1], chains[i]);
}

// Taps output by output, and the input channel of each.
template <class T>
std::vector<int> Program<T>::list_taps(Task<T>& task, const ProgramStep<T>& step) {
  const Site& in = task.in;
  const ProgramTensor given = forms_[step.source].size;
  const int own = given.channels / step.groups, window = step.kernel_rows * step.kernel_cols, of_group = task.out.channels / step.groups;
  const bool was_split = task.stride_rows != step.stride_rows || task.stride_cols != step.stride_cols;
  const int split_rows = was_split ? step.stride_rows : 1, split_cols = was_split ? step.stride_cols : 1;
  const int phase_rows = std::min(split_rows, (step.kernel_rows - 1) * step.dilation_rows + 1);
  const int phase_cols = std::min(split_cols, (step.kernel_cols - 1) * step.dilation_cols + 1);
  begins_.emplace_back(size_t(task.out.channels) + 1, 0);
  taps_.emplace_back(size_t(step.count));
  std::vector<int64_t>& begin = begins_.back();
  std::vector<int> channels(size_t(step.count));
  for (int64_t e = 0; e < step.count; e++) {
    const int64_t flat = step.where[e], channel = flat / window;
    const int tap = int(flat % window), o = int(channel / own);
    const int row = tap / step.kernel_cols * step.dilation_rows - task.pad_top, col = tap % step.kernel_cols * step.dilation_cols - task.pad_left;
    int64_t plane = channel % own + int64_t(o / of_group) * own;
    int64_t pixel = int64_t(row) * in.pitch + col;
    if (was_split) {
      plane = (plane * phase_rows + row % split_rows) * phase_cols + col % split_cols;
      pixel = int64_t(row / split_rows) * in.pitch + col / split_cols;
    }
    channels[size_t(e)] = int(plane);
    taps_.back()[size_t(e)] = {int32_t(plane * in.plane + pixel * innermost_), step.values[e]};
    begin[size_t(o) + 1]++;
  }
  for (size_t o = 1; o < begin.size(); o++) begin[o] += begin[o - 1];
  task.begin = task.before = begin.data(), task.taps = taps_.back().data();
  task.dense = step.groups == 1 && step.count == int64_t(task.out.channels) * given.channels * window;
  return channels;
}

// Taps block by block of input channels, inside a block output by output.
template <class T>
void Program<T>::block_taps(Task<T>& task, const std::vector<int>& channels) {
  const int64_t outputs = task.out.channels;
  const auto index = [&](int64_t o, int64_t tap) { return size_t(int64_t(channels[size_t(tap)]) * task.blocks / task.in.channels * outputs + o); };
  std::vector<int64_t> begin(size_t(outputs * task.blocks) + 1, 0);
  for (int64_t o = 0; o < outputs; o++)
    for (int64_t tap = task.before[o]; tap < task.before[o + 1]; tap++) begin[index(o, tap) + 1]++;
  for (size_t i = 1; i < begin.size(); i++) begin[i] += begin[i - 1];
  std::vector<Tap<T>> blocked(channels.size());
  std::vector<int64_t> next = begin;
  for (int64_t o = 0; o < outputs; o++)
    for (int64_t tap = task.before[o]; tap < task.before[o + 1]; tap++) blocked[size_t(next[index(o, tap)]++)] = task.taps[tap];
  begins_.push_back(std::move(begin));
  taps_.back() = std::move(blocked);
  task.begin = begins_.back().data(), task.taps = taps_.back().data();
}

template <class T>
void Program<T>::choose_tile(Task<T>& task) const {
  const int64_t taps = task.before[task.out.channels], inputs = task.in.plane * task.in.channels;
  // Each thread reads its part of the larger one; of the map it wrote most itself.
  task.by_place = task.rows * task.cols > 1 && taps * int64_t(sizeof(Tap<T>)) < inputs * int64_t(sizeof(T));
  task.blocks = 1;
  const double of_output = std::max(double(taps) / task.out.channels, 1e-9);
  innermost_ > 1 ? choose_sample_tile(task, of_output) : choose_pixel_tile(task, of_output);
}

// Of input channels, so that most of each block's `numbers` stay in L1: half as many again measured best.
template <class T>
int Program<T>::blocks_for(const Task<T>& task, int64_t numbers) const {
  const int64_t channels = std::max<int64_t>(1, first_cache_ * 3 / 2 / (numbers * int64_t(sizeof(T))));
  return int((task.in.channels + channels - 1) / channels);
}

template <class T>
void Program<T>::choose_pixel_tile(Task<T>& task, double taps) const {
  const int64_t pixels = int64_t(task.rows - 1) * task.in.pitch + task.cols, vectors = (pixels + lanes_ - 1) / lanes_;
  const int64_t tiles = (vectors + kMostTileVectors - 1) / kMostTileVectors;
  task.tile_vectors = pixels == 1 ? 0 : int((vectors + tiles - 1) / tiles);
  if (task.dense || task.tile_vectors < kFewVectors) return;
  const int64_t row = int64_t(task.tile_vectors) * lanes_ + (task.kernel_cols - 1) * task.dilation_cols, rows = task.kernel_rows - 1;
  const int blocks = blocks_for(task, row + rows * std::min<int64_t>(row, int64_t(task.dilation_rows) * task.in.pitch));
  if (kAgain * blocks / taps < kFar) task.blocks = blocks;
}

// The tile and the blocks that cover the map in the least time, counted in multiply-adds out of L1. A tap costs a tile a little more; an
// input too large for L1 nearly doubles the time; blocks bring it near, for the price of sums that are stored and loaded again.
template <class T>
void Program<T>::choose_sample_tile(Task<T>& task, double taps) const {
  const int most = lanes_ * int(sizeof(T)) == 64 ? 24 : 12;  // vectors that registers hold
  double least = 0;
  const auto consider = [&](int rows, int cols, int blocks, double more) {
    const double tiles = double((task.rows + rows - 1) / rows) * ((task.cols + cols - 1) / cols);
    const double cost = tiles * (rows * cols * (1 + more) + 2 + 0.25 * rows);
    if (task.tile_rows && cost >= least) return;
    least = cost, task.tile_rows = rows, task.tile_cols = cols, task.blocks = blocks;
  };
  const int unit = task.pooled ? 2 : 1;
  for (int rows = unit; rows <= std::min(kMostTileRows, task.rows); rows += unit)
    for (int cols = unit; cols <= std::min(kMostTileCols, task.cols); cols += unit) {
      if (rows * cols > most) continue;
      const int halo_rows = (rows - 1) * task.stride_rows + (task.kernel_rows - 1) * task.dilation_rows + 1;
      const int halo_cols = (cols - 1) * task.stride_cols + (task.kernel_cols - 1) * task.dilation_cols + 1;
      const int blocks = blocks_for(task, int64_t(halo_rows) * halo_cols * innermost_);
      consider(rows, cols, 1, blocks > 1 ? kFar : 0);
      if (blocks > 1 && !task.dense && rows * cols >= kFewVectors) consider(rows, cols, blocks, kAgain * blocks / taps);
    }
}

template <class T>
void Program<T>::keep_pixels(Task<T>& task) {
  const int64_t pixels = int64_t(task.out.rows - 1) * task.out.pitch + task.out.cols;
  T* keep = zeros<T>(rounded_up(pixels, lanes_));
  keeps_.push_back(keep);
  for (int row = 0; row < task.out.rows; row++) std::memset(static_cast<void*>(keep + int64_t(row) * task.out.pitch), 0xff, size_t(task.out.cols) * sizeof(T));
  task.keep = keep;
}

template <class T>
T* Program<T>::take_arena() const {
  {
    const std::lock_guard<std::mutex> guard(lock_);
    if (!arenas_.empty()) {
      T* arena = arenas_.back();
      arenas_.pop_back();
      return arena;
    }
  }
  return zeros<T>(size_);
}

template <class T>
void Program<T>::give_back(T* arena) const {
  const std::lock_guard<std::mutex> guard(lock_);
  arenas_.push_back(arena);
}

template <class T>
int64_t Program<T>::work(const Task<T>& task) const {
  const int64_t pixels = int64_t(task.rows) * task.cols * innermost_ / kWorkLanes + 1;
  return task.kind == Kind::layer ? pixels * (task.before[task.out.channels] + task.out.channels)
                                  : pixels * task.out.channels * std::max(1, task.kernel_rows * task.kernel_cols) * (innermost_ == 1 ? 4 : 1);
}

template <class T>
void Program<T>::run_block(const Runner<T>& run, const T* x, T* y, int samples, bool alone) const {
  T* arena = take_arena();
  const auto step = [&](int64_t units, const auto& body) {
    const int parts = alone ? 1 : run.parts_for(units);
    if (parts == 1) return body(0, 1);
    run.parallel(parts, [&](int part) { body(part, parts); });
  };
  const Site &in = forms_[0].place, &out = tasks_.back().out;
  step(int64_t(in.channels) * in.rows * in.cols * samples / kWorkLanes,
       [&](int part, int parts) { run.kernels.program_load(in, innermost_, x, samples, arena, part, parts); });
  if (alone) {
    for (const Strip& strip : order_) run.kernels.program_step(tasks_[size_t(strip.task)], arena, strip.rows, 0, 1);
  } else {
    for (const Task<T>& task : tasks_)
      step(work(task), [&](int part, int parts) { run.kernels.program_step(task, arena, {0, task.rows}, part, parts); });
  }
  run.kernels.program_store(out, innermost_, arena, samples, y, 0, 1);
  give_back(arena);
}

template <class T>
void Program<T>::run(const Runner<T>& run, const T* x, T* y, int64_t samples) const {
  const Site &in = forms_[0].place, &out = tasks_.back().out;
  const int64_t of_x = int64_t(in.channels) * in.rows * in.cols, of_y = int64_t(out.channels) * out.rows * out.cols;
  const int64_t blocks = (samples + innermost_ - 1) / innermost_;
  const auto block = [&](int64_t b, bool alone) {
    const int64_t first = b * innermost_;
    run_block(run, x + first * of_x, y + first * of_y, int(std::min<int64_t>(innermost_, samples - first)), alone);
  };
  // Whole rounds of blocks, one for each thread; what is left is shared block by block.
  const int64_t own = blocks / run.threads * run.threads;
  const auto mine = [&](int part) {
    for (int64_t b = part; b < own; b += run.threads) block(b, true);
  };
  if (own) run.threads > 1 ? run.parallel(run.threads, mine) : mine(0);
  for (int64_t b = own; b < blocks; b++) block(b, false);
}

template class Program<float>;
template class Program<double>;

}  // namespace regrow
