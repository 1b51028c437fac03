// What the planner's model of a step (src/plan/optimal/layout.h) makes of decisions.

#include "src/plan/optimal/layout.h"

#include <gtest/gtest.h>

#include "plan/tapes.h"
#include "vdnn/checker.h"

namespace vdnn::testing {
namespace {

PlanCosts costs_of(const Tape& tape, double link) {
  PlanCosts costs{.op_seconds = {},
                  .device_to_host = link,
                  .host_to_device = link,
                  .device_to_host_both_ways = link,
                  .host_to_device_both_ways = link,
                  .copy_seconds = 0,
                  .alignment_bytes = 64,
                  .granule_bytes = 64};
  for (const Op& op : tape.ops()) {
    costs.op_seconds.emplace_back(op.algorithms.size(), 1.0);
  }
  return costs;
}

// Before, a value that was needed soon stayed behind one that was copied before it and needed later, and was
// given back only when it should have been there again.
TEST(Layout, WhatIsNeededSoonHasLeftBeforeItIsFetched) {
  const TapePtr tape = model_tape("fashion-vgg");
  for (const double bytes_per_second : {1e2, 1e3, 1e4, 1e5, 1e6}) {
    const PlanCosts costs = costs_of(*tape, bytes_per_second);
    const optimal::Problem problem(*tape, {}, costs);
    optimal::Layout layout(problem);
    const optimal::Fates all(problem.gaps().size(), optimal::Fate::kOffload);
    ASSERT_TRUE(layout.evaluate(all, problem.most_bytes()).feasible());
    Plan plan = plan_of(*tape, Policy::kOffloadNone);
    layout.write(plan);
    for (const Transfer& transfer : plan.transfers) {
      EXPECT_LE(transfer.offload_with, transfer.release_with);
      EXPECT_LT(transfer.release_with, transfer.prefetch_with) << tape->value(transfer.value).name;
    }
    EXPECT_TRUE(check_schedule(*tape, make_schedule(*tape, plan)).empty());
  }
}

}  // namespace
}  // namespace vdnn::testing
