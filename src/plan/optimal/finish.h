#pragma once
// The last changes to the fastest plan of the contest. The search had limits of workspace and did not know
// addresses, so its plan may leave memory unused.

#include "src/plan/optimal/contest.h"
#include "src/plan/optimal/problem.h"
#include "src/plan/placement.h"

namespace vdnn::optimal {

// Groups of ops switch to faster algorithms whose workspaces have a place among the other buffers, if the
// step becomes shorter. An op switches back if the step becomes still shorter. If the plan then reserves more
// than most_reserved_bytes(), buffers are placed closer together, unless the step becomes longer. No more
// algorithms change after a few hundred forecasts. `problem` has no workspace limit except the user's. A plan
// without addresses does not change.
void finish(const Problem& problem, Contest& contest, Placements& placements);

}  // namespace vdnn::optimal
