// What a stencil sees along one axis, rows or columns: which taps reach which output positions.
#pragma once
#include <cstddef>
#include <vector>

#include "plan.h"

namespace regrow {

inline int ceil_div(int a, int b) { return (a + b - 1) / b; }

// Sizes along the axis.
struct Axis {
  int kernel, stride, pad, dilation, in, out;
};

// One kernel position: which residue of the output it serves, and which input it reads.
struct AxisTap {
  int residue, offset;
};

// Output positions of one residue, from `start` of its own grid on, and the reach of the taps that find any input there.
struct Band {
  int residue, start, count;
  int low, high;
};

struct AxisPlan {
  int step, in;               // input positions per output position of a residue; size of the input
  std::vector<AxisTap> taps;  // per kernel position
  std::vector<Band> bands;

  bool reaches(const AxisTap& tap, const Band& band) const;
  Band band(int residue, int start, int count) const;
  std::vector<std::vector<size_t>> reached() const;  // per kernel position the bands that it reaches
};

// One band per residue of the output.
AxisPlan plan_axis(const Axis& axis, Pass pass);

// Cuts the one band of an input gradient without stride where tiles stop to need a tap: near the borders most taps of an unpadded
// convolution meet nothing. Left whole where little is gained.
void cut(AxisPlan& plan, int tile);

}  // namespace regrow
