#pragma once
// A sweep as a picture: an SVG by itself, for a browser or a page.

#include <iosfwd>

#include "src/train/sweep.h"

namespace vdnn {

// The budget from left to right and the time of a step relative to the oracle's upwards, both in ratios:
// equal distances are equal factors. A line a policy, with a circle for each budget that it fits in; what is
// faster than the lower bound is shaded. Each circle's <title> has its figures.
void write_sweep_chart(std::ostream& out, const Sweep& sweep);

}  // namespace vdnn
