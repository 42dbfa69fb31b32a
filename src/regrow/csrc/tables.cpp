#include "tables.h"

#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
#define REGROW_HAS(FEATURE) __builtin_cpu_supports(FEATURE)
#else
#define REGROW_HAS(FEATURE) false
#endif

namespace regrow {

std::vector<const Kernels<float>*> tables() {
  std::vector<const Kernels<float>*> found;
#define TABLE(NAME, RUNS) \
  if (NAME##_table() && (RUNS)) found.push_back(NAME##_table());
#include "tables.inc"
#undef TABLE
  return found;
}

const Kernels<float>& chosen_table() {
  static const Kernels<float>* const chosen = [] {
    const auto found = tables();
    const char* wish = std::getenv("REGROW_ISA");
    for (const auto* table : found)
      if (wish && std::strcmp(wish, table->traits->name) == 0) return table;
    return found.front();
  }();
  return *chosen;
}

}  // namespace regrow
