// The lower bound (src/plan/optimal/bound.h) on random small tapes.

#include "src/plan/optimal/bound.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "src/plan/optimal/problem.h"
#include "tests/exec/small_tapes.h"
#include "vdnn/optimal_plan.h"
#include "vdnn/plan_costs.h"
#include "vdnn/predictor.h"

namespace vdnn {
namespace {

using testing::small_tape;
using testing::SmallTape;

constexpr double kExact = std::numeric_limits<double>::infinity();

// The limit of 0 bytes leaves no algorithm with a workspace. So the bounds of the two problems differ, and a
// bound that took over too much from the other one would be wrong.
TEST(Bound, MadeFromThatOfAnotherLimitIsTheSame) {
  constexpr std::uint64_t kTapes = 50;
  constexpr int kSizes = 8;
  int differ = 0;
  for (std::uint64_t seed = 0; seed < kTapes; ++seed) {
    SCOPED_TRACE(seed);
    const SmallTape small = small_tape(seed);
    const PlanCosts costs = plan_costs(*small.tape, {.profile = small.profile});
    const optimal::Problem free(*small.tape, {}, costs);
    const optimal::Problem limited(*small.tape, {}, costs, 0);
    optimal::Bound of_free(free);
    optimal::Bound copied_before_use(limited, of_free);
    optimal::Bound anew(limited);
    for (int size = 0; size <= kSizes; ++size) {
      const std::uint64_t bytes = free.persistent_bytes() + free.least_bytes() +
                                  (free.most_bytes() - free.least_bytes()) / kSizes * size;
      const double seconds_of_free = of_free.seconds(bytes, kExact);
      optimal::Bound copied_after_use(limited, of_free);
      const double seconds = anew.seconds(bytes, kExact);
      EXPECT_EQ(copied_before_use.seconds(bytes, kExact), seconds);
      EXPECT_EQ(copied_after_use.seconds(bytes, kExact), seconds);
      differ += seconds_of_free < seconds ? 1 : 0;
    }
  }
  EXPECT_GT(differ, 0);
}

}  // namespace
}  // namespace vdnn
