// The kernels of one instruction set and precision, as a table of functions.
#pragma once
#include "plan.h"
#include "program.h"
#include "records.h"
#include "scratch.h"
#include "twister.h"

namespace regrow {

constexpr int kPeakAccumulators = 12;  // of `multiply_add`

template <class T>
struct Kernels {
  const Traits* traits;
#define KERNEL(NAME, ...) void (*NAME)(__VA_ARGS__);
#include "kernels.inc"
#undef KERNEL
};

// Null where the compiler could not build the table.
#define TABLE(NAME, RUNS) const Kernels<float>* NAME##_table();
#include "tables.inc"
#undef TABLE
const Kernels<double>* double_table();

}  // namespace regrow
