#pragma once
// A sweep as a chart: a standalone SVG for a browser or a page.

#include <iosfwd>

#include "src/run/sweep.h"

namespace vdnn {

// The budget runs from left to right and the time of a step upwards, both on logarithmic scales. The time is
// relative to the oracle's, or in milliseconds if several precisions with different oracles are compared. A
// plan also fits every larger budget, so the curves are step functions. There is one curve for each policy
// and precision, with a mark at each budget into which it fits. The color is the policy's; the dashes and the
// mark are the precision's. Each mark's <title> has its figures. The area that no plan can reach, in any of
// the precisions, is shaded.
void write_sweep_chart(std::ostream& out, const Sweep& sweep);

}  // namespace vdnn
