#include "scratch.h"

#include <cstdlib>
#include <new>

namespace regrow {

Scratch::~Scratch() { std::free(data_); }

void* Scratch::reserve(size_t bytes) {
  bytes = (bytes + 127) / 64 * 64;
  if (bytes > size_) {
    std::free(data_);
    data_ = std::aligned_alloc(64, bytes);
    size_ = data_ ? bytes : 0;
    if (!data_) throw std::bad_alloc();
  }
  return data_;
}

}  // namespace regrow
