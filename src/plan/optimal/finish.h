#pragma once
// The last changes to the fastest plan of the contest. The search had limits of workspace and did not know
// addresses, so its plan may leave memory unused.

#include "src/plan/optimal/contest.h"
#include "src/plan/optimal/problem.h"
#include "src/plan/placement.h"

namespace vdnn::optimal {

// Groups of ops switch to faster algorithms whose workspaces have a place among the other buffers, if the
// step becomes shorter. Then, if the plan reserves more than most_reserved_bytes(), buffers are placed closer
// together, if the step becomes no longer. The number of forecasts is limited. `problem` has no workspace
// limit except the user's. A plan without addresses does not change.
void finish(const Problem& problem, Contest& contest, Placements& placements);

}  // namespace vdnn::optimal
