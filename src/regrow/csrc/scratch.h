// What kernels need of memory and threads. No function here is compiled twice (see table.inl).
#pragma once
#include <cstddef>
#include <cstdint>

#define REGROW_INLINE inline __attribute__((always_inline))

namespace regrow {

// Aligned memory that a thread keeps between calls: kernels allocate nothing in steady state.
class Scratch {
 public:
  ~Scratch();
  template <class T>
  REGROW_INLINE T* get(size_t count) { return static_cast<T*>(reserve(count * sizeof(T))); }

 private:
  void* reserve(size_t bytes);
  void* data_ = nullptr;
  size_t size_ = 0;
};

// The part-th of `parts` nearly equal ranges of [0, total).
struct Range {
  int64_t begin, end;
};
REGROW_INLINE Range share(int64_t total, int part, int parts) { return {total * part / parts, total * (part + 1) / parts}; }

}  // namespace regrow
