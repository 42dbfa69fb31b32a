#include "scratch.h"

#include <cstdlib>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace regrow {
namespace {

constexpr size_t kHugePage = 2 << 20;

// Memory of many megabytes is read here and there: huge pages spare the walk to where each small one lies.
void* allocate(size_t bytes) {
#ifdef MADV_HUGEPAGE
  if (bytes >= 2 * kHugePage) {
    void* data = std::aligned_alloc(kHugePage, (bytes + kHugePage - 1) / kHugePage * kHugePage);
    if (data) madvise(data, bytes, MADV_HUGEPAGE);  // advice: whether it is taken changes no result
    return data;
  }
#endif
  return std::aligned_alloc(64, bytes);
}

}  // namespace

Scratch::~Scratch() { std::free(data_); }

void* Scratch::reserve(size_t bytes) {
  bytes = (bytes + 127) / 64 * 64;
  if (bytes > size_) {
    std::free(data_);
    data_ = allocate(bytes);
    size_ = data_ ? bytes : 0;
    if (!data_) throw std::bad_alloc();
  }
  return data_;
}

}  // namespace regrow
