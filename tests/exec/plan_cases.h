#pragma once
// Test cases for executors: the schedules of all static policies, schedules that recompute, and schedules
// with planned addresses.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/plan/dropping_plan.h"
#include "tests/plan/lives_plan.h"
#include "vdnn/plan.h"
#include "vdnn/schedule.h"

namespace vdnn::testing {

struct PlanCase {
  std::string name;
  Policy policy = Policy::kOffloadNone;
  // If set, dropping_plan() replaces the policy's decisions and offloads every n-th value (0: none).
  std::optional<std::size_t> dropping;
  // If set, lives_plan() with this seed replaces the policy's decisions.
  std::optional<std::uint64_t> lives;
  bool placed = false;

  bool offloads() const {
    return lives ||
           (dropping ? *dropping > 0 : policy == Policy::kOffloadAll || policy == Policy::kOffloadConv);
  }
  bool recomputes() const { return lives || dropping; }
  // Whether the schedule keeps more than the parameters in memory between steps.
  bool holds_memory() const { return placed || policy == Policy::kBaseline; }
};

inline std::ostream& operator<<(std::ostream& out, const PlanCase& plan_case) {
  return out << plan_case.name;
}

inline std::vector<PlanCase> plan_cases() {
  std::vector<PlanCase> cases;
  for (const Policy policy :
       {Policy::kBaseline, Policy::kOffloadNone, Policy::kOffloadAll, Policy::kOffloadConv}) {
    cases.push_back({.name = to_string(policy), .policy = policy});
  }
  for (const bool placed : {false, true}) {
    const std::string suffix = placed ? "_placed" : "";
    cases.push_back({.name = "recomputed" + suffix, .dropping = 0, .placed = placed});
    cases.push_back({.name = "mixed" + suffix, .dropping = 2, .placed = placed});
    cases.push_back({.name = "several_lives" + suffix, .lives = placed ? 1 : 0, .placed = placed});
  }
  cases.push_back({.name = "all_placed", .policy = Policy::kOffloadAll, .placed = true});
  return cases;
}

inline Schedule schedule_of(const Tape& tape, const PlanCase& plan_case) {
  constexpr std::uint64_t kAlignment = 4096;  // suffices for every device, page-aligned blocks included
  Plan plan = plan_case.lives      ? lives_plan(tape, *plan_case.lives)
              : plan_case.dropping ? dropping_plan(tape, *plan_case.dropping)
                                   : make_plan(tape, {.policy = plan_case.policy});
  plan.placement_alignment = plan_case.placed ? kAlignment : 0;
  return make_schedule(tape, plan);
}

}  // namespace vdnn::testing
