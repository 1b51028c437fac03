#pragma once
// A sweep as a picture: an SVG by itself, for a browser or a page.

#include <iosfwd>

#include "src/train/sweep.h"

namespace vdnn {

// The budget from left to right and the time of a step upwards, both in ratios: equal distances are equal
// factors. The time is relative to the oracle's, or in milliseconds where several precisions are compared,
// whose oracles differ. A plan for a budget serves each larger one, so that the curves are steps. One for
// each policy and precision, with a mark for each budget that it fits in: the color is the policy's, the
// dashes and the mark are the precision's. Each mark's <title> has its figures. What no plan can do, in any
// of the precisions, is shaded.
void write_sweep_chart(std::ostream& out, const Sweep& sweep);

}  // namespace vdnn
