#pragma once
// The last changes to the fastest plans of the contest. The search did not know addresses, so its plans may
// leave memory unused.

#include "src/plan/optimal/contest.h"
#include "src/plan/optimal/problem.h"
#include "src/plan/placement.h"

namespace vdnn::optimal {

// Changes the best plan of problem number `number`, which is `problem`, and the problems after it. Groups of
// ops switch to faster algorithms whose workspaces have a place among the other buffers, if the step becomes
// shorter. An op switches back if the step becomes still shorter. If the plan then reserves more than
// most_reserved_bytes(), buffers are placed closer together, unless the step becomes longer. No more
// algorithms change after a few hundred forecasts. A plan does not change if it has no addresses, or if it
// cannot become the fastest of the contest. The changed plans count as plans of `number`.
void finish(std::size_t number, const Problem& problem, Contest& contest, Placements& placements);

}  // namespace vdnn::optimal
