// A program planned for one size of input: tasks, lists of taps, and arenas that calls take and give back.
#pragma once
#include <mutex>
#include <vector>

#include "layer.h"

namespace regrow {

template <class T>
class Program {
 public:
  // The first tensor is the input; the last step's target is the output. `innermost` is 1 or the number of lanes.
  Program(const Traits& traits, const ProgramTensor* tensors, int tensor_count, const ProgramStep<T>* steps, int step_count, bool samples_innermost);
  Program(const Program&) = delete;
  ~Program();

  // y <- the network's answers to x, both [sample][channel][row][col]. Calls from several threads at once may run.
  void run(const Runner<T>& run, const T* x, T* y, int64_t samples) const;

 private:
  struct Border {
    int top = 0, left = 0, bottom = 0, right = 0;
  };
  struct Form {
    ProgramTensor size;
    Border border;
    Site place;
  };
  int add_form(ProgramTensor size);
  void add_layer(const ProgramStep<T>& step);
  bool pools(const ProgramStep<T>* steps, int count, int i) const;
  int chain_end(int first) const;
  void order_chain(int first, int end);
  void note_border(int tensor, const ProgramStep<T>& step, const ProgramTensor& out);
  void place_all(const std::vector<const ProgramStep<T>*>& sources);
  void shape_plane(Form& form) const;
  std::vector<int> list_taps(Task<T>& task, const ProgramStep<T>& step);
  void choose_tile(Task<T>& task) const;
  void choose_sample_tile(Task<T>& task, double taps) const;
  void choose_pixel_tile(Task<T>& task, double taps) const;
  int blocks_for(const Task<T>& task, int64_t numbers) const;
  void block_taps(Task<T>& task, const std::vector<int>& channels);
  void keep_pixels(Task<T>& task);
  T* take_arena() const;
  void give_back(T* arena) const;
  int64_t work(const Task<T>& task) const;
  void run_block(const Runner<T>& run, const T* x, T* y, int samples, bool alone) const;

  struct Use {
    int in, other, out;
  };
  // Some rows of a task.
  struct Strip {
    int task;
    Range rows;
  };
  int lanes_, innermost_;
  int64_t first_cache_, second_cache_;
  std::vector<Form> forms_;
  std::vector<Task<T>> tasks_;
  std::vector<Use> uses_;
  std::vector<Strip> order_;  // in which one thread alone runs them
  std::vector<std::vector<int64_t>> begins_;
  std::vector<std::vector<Tap<T>>> taps_;
  std::vector<std::vector<T>> numbers_;  // biases, scales
  std::vector<T*> keeps_;
  int64_t size_ = 0;
  mutable std::mutex lock_;
  mutable std::vector<T*> arenas_;
};

extern template class Program<float>;
extern template class Program<double>;

}  // namespace regrow
