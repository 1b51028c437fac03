#pragma once
// The last changes to the fastest plans of the contest. The search did not know addresses, so its plans may
// leave memory unused.

#include <span>

#include "src/plan/optimal/contest.h"
#include "src/plan/optimal/problem.h"
#include "src/plan/placement.h"

namespace vdnn::optimal {

// Enters changed plans. The problems are in the order of their numbers in the contest, in which each has had
// a round. Each has the choices of algorithms of the problem after it, and may have more. For each problem,
// the best plan of this problem and the problems after it is changed with the problem's choices. If the
// problem after it has the same best plan, this is only done if a choice that only this problem has has a
// place.
//
// Groups of ops switch to faster algorithms whose workspaces have a place among the other buffers, if the
// step becomes shorter. An op switches back if the step becomes still shorter. If the plan then reserves more
// than most_reserved_bytes(), buffers are placed closer together, unless the step becomes longer. No more
// algorithms of a plan change after a few hundred forecasts. A plan does not change if it has no addresses.
// Neither does a plan that is not the fastest, if its ops have too little to gain.
void finish(std::span<const Problem* const> problems, Contest& contest, Placements& placements);

}  // namespace vdnn::optimal
