#include "axis.h"

#include <algorithm>
#include <utility>

namespace regrow {
namespace {

constexpr double kWorthCutting = 0.9;  // a cut that leaves more than this share of the work is not made

int floor_mod(int a, int b) { return ((a % b) + b) % b; }

AxisTap tap_of(const Axis& axis, int k, Pass pass) {
  const int shift = k * axis.dilation - axis.pad;
  if (pass == Pass::forward) return {0, shift};
  const int residue = floor_mod(shift, axis.stride);
  return {residue, (residue - shift) / axis.stride};
}

// Does position `i * stride + offset` fall inside [0, in) for any i < count?
bool meets(int offset, int stride, int count, int in) {
  for (int i = 0; i < count; i++)
    if (const int at = i * stride + offset; at >= 0 && at < in) return true;
  return false;
}

}  // namespace

bool AxisPlan::reaches(const AxisTap& tap, const Band& band) const {
  return tap.residue == band.residue && meets(band.start * step + tap.offset, step, band.count, in);
}

Band AxisPlan::band(int residue, int start, int count) const {
  Band b{residue, start, count, 1, 0};
  for (const AxisTap& tap : taps) {
    if (!reaches(tap, b)) continue;
    if (b.low > b.high) b.low = b.high = tap.offset;
    b.low = std::min(b.low, tap.offset), b.high = std::max(b.high, tap.offset);
  }
  if (b.low > b.high) b.low = b.high = 0;
  return b;
}

std::vector<std::vector<size_t>> AxisPlan::reached() const {
  std::vector<std::vector<size_t>> found(taps.size());
  for (size_t k = 0; k < taps.size(); k++)
    for (size_t b = 0; b < bands.size(); b++)
      if (reaches(taps[k], bands[b])) found[k].push_back(b);
  return found;
}

AxisPlan plan_axis(const Axis& axis, Pass pass) {
  const bool forward = pass == Pass::forward;
  AxisPlan plan{forward ? axis.stride : 1, forward ? axis.in : axis.out, {}, {}};
  for (int k = 0; k < axis.kernel; k++) plan.taps.push_back(tap_of(axis, k, pass));
  for (int r = 0; r < (forward ? 1 : axis.stride); r++)
    plan.bands.push_back(plan.band(r, 0, forward ? axis.out : ceil_div(std::max(0, axis.in - r), axis.stride)));
  return plan;
}

void cut(AxisPlan& plan, int tile) {
  const Band whole = plan.bands[0];
  std::vector<Band> bands;
  int work = 0;
  for (int start = 0; start < whole.count; start += tile) {
    const int count = std::min(tile, whole.count - start);
    const Band next = plan.band(0, start, count);
    work += count * (next.high - next.low + 1);
    if (!bands.empty() && bands.back().low == next.low && bands.back().high == next.high)
      bands.back().count += count;
    else
      bands.push_back(next);
  }
  if (work < kWorthCutting * whole.count * (whole.high - whole.low + 1)) plan.bands = std::move(bands);
}

}  // namespace regrow
