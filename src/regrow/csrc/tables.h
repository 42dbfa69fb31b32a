// The kernel tables that this machine can run.
#pragma once
#include <vector>

#include "kernels.h"

namespace regrow {

// Best first; the last ones run everywhere.
std::vector<const Kernels<float>*> tables();

// The best, or the one that the environment variable REGROW_ISA names if it is among them.
const Kernels<float>& chosen_table();

}  // namespace regrow
