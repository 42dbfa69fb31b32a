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
constexpr int kFewPixels = 4;     // of a tile: storing its sums would cost more than it gains

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
    : lanes_(traits.vector_bytes / int(sizeof(T))), first_cache_(traits.first_cache_bytes), innermost_(samples_innermost ? lanes_ : 1) {
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
    tasks_.push_back(task);
    uses_.push_back({step.source, -1, source});
  } else {
    note_border(step.source, step, out);
  }
  tasks_.push_back({});
  uses_.push_back({source, step.other, step.target});
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
  for (int i = 0; i < last_step; i++) {
    settle(uses_[i].out);
    std::vector<int> done{uses_[i].in};
    if (uses_[i].other >= 0 && uses_[i].other != uses_[i].in) done.push_back(uses_[i].other);
    for (int tensor : done)
      if (last_use[tensor] == i) free_places[key(forms_[tensor].place, within[tensor])].push_back(forms_[tensor].place.base - within[tensor]);
  }
  if (size_ >= int64_t(1) << 31) throw std::length_error("offsets have 32 bits");
  for (int i = 0; i < last_step; i++) {
    Task<T>& task = tasks_[i];
    task.innermost = innermost_;
    task.in = forms_[uses_[i].in].place, task.out = forms_[uses_[i].out].place;
    task.has_other = uses_[i].other >= 0;
    if (task.has_other) task.other = forms_[uses_[i].other].place;
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
  task.blocks = 1;
  if (innermost_ > 1) return choose_sample_tile(task);
  const int64_t pixels = int64_t(task.out.rows - 1) * task.in.pitch + task.out.cols, vectors = (pixels + lanes_ - 1) / lanes_;
  const int64_t tiles = (vectors + kMostTileVectors - 1) / kMostTileVectors;
  task.tile_vectors = pixels == 1 ? 0 : int((vectors + tiles - 1) / tiles);
}

// The tile and the blocks that cover the map in the least time, counted in multiply-adds out of L1. A tap costs a tile a little more; an
// input too large for L1 nearly doubles the time; blocks bring it near, for the price of sums that are stored and loaded again.
template <class T>
void Program<T>::choose_sample_tile(Task<T>& task) const {
  const Site& out = task.out;
  const int most = lanes_ * int(sizeof(T)) == 64 ? 24 : 12;  // vectors that registers hold
  const double far = 0.8, again = 4;                         // fitted on Zen 4
  const double taps = double(task.before[out.channels]) / out.channels;
  double least = 0;
  const auto consider = [&](int rows, int cols, int blocks, double more) {
    const double tiles = double((out.rows + rows - 1) / rows) * ((out.cols + cols - 1) / cols);
    const double cost = tiles * (rows * cols * (1 + more) + 2 + 0.25 * rows);
    if (task.tile_rows && cost >= least) return;
    least = cost, task.tile_rows = rows, task.tile_cols = cols, task.blocks = blocks;
  };
  for (int rows = 1; rows <= std::min(kMostTileRows, out.rows); rows++)
    for (int cols = 1; cols <= std::min(kMostTileCols, out.cols); cols++) {
      if (rows * cols > most) continue;
      const int halo_rows = (rows - 1) * task.stride_rows + (task.kernel_rows - 1) * task.dilation_rows + 1;
      const int halo_cols = (cols - 1) * task.stride_cols + (task.kernel_cols - 1) * task.dilation_cols + 1;
      const int64_t channels = std::max<int64_t>(1, first_cache_ / (int64_t(halo_rows) * halo_cols * innermost_ * int64_t(sizeof(T))));
      const int64_t blocks = (task.in.channels + channels - 1) / channels;
      consider(rows, cols, 1, blocks > 1 ? far : 0);
      if (blocks > 1 && rows * cols >= kFewPixels) consider(rows, cols, int(blocks), again * double(blocks) / std::max(taps, 1e-9));
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
  const int64_t pixels = int64_t(task.out.rows) * task.out.cols * innermost_ / kWorkLanes + 1;
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
  for (const Task<T>& task : tasks_)
    step(work(task), [&](int part, int parts) { run.kernels.program_step(task, arena, part, parts); });
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
  const int64_t rounds = run.threads > 1 ? blocks / run.threads : 0, own = rounds * run.threads;
  if (own)
    run.parallel(run.threads, [&](int part) {
      for (int64_t b = part; b < own; b += run.threads) block(b, true);
    });
  for (int64_t b = own; b < blocks; b++) block(b, false);
}

template class Program<float>;
template class Program<double>;

}  // namespace regrow
