// Eight lanes as one value, through the compiler's vector extension: the same source serves every instruction set and precision.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "plan.h"

#define REGROW_INLINE inline __attribute__((always_inline))
#define REGROW_UNROLL _Pragma("GCC unroll 16")

namespace regrow {

template <class T>
struct Simd;
template <>
struct Simd<float> {
  typedef float Vec __attribute__((vector_size(32), may_alias));
  typedef float Loose __attribute__((vector_size(32), aligned(4), may_alias));
};
template <>
struct Simd<double> {
  typedef double Vec __attribute__((vector_size(64), may_alias));
  typedef double Loose __attribute__((vector_size(64), aligned(8), may_alias));
};

// Aligned memory that a thread keeps between calls: kernels allocate nothing in steady state.
class Scratch {
 public:
  ~Scratch() { std::free(data_); }
  template <class T>
  T* get(size_t count) {
    const size_t bytes = (count * sizeof(T) + 127) / 64 * 64;
    if (bytes > size_) {
      std::free(data_);
      data_ = std::aligned_alloc(64, bytes);
      size_ = data_ ? bytes : 0;
      if (!data_) throw std::bad_alloc();
    }
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

// The part-th of `parts` nearly equal ranges of [0, total).
struct Range {
  int64_t begin, end;
};
inline Range share(int64_t total, int part, int parts) { return {total * part / parts, total * (part + 1) / parts}; }

}  // namespace regrow
