#pragma once
// Runs steps of a schedule through the real executor and the real pools. The simulated device executes work
// in a random permitted order, drawn from a seed.

#include <cstdint>
#include <memory>

#include "tests/exec/executor_rig.h"
#include "vdnn/sim_device.h"

namespace vdnn::testing {

enum class Check : std::uint8_t { kRaces, kVersions, kBoth };

// More memory than any schedule here needs.
inline std::unique_ptr<SimDevice> make_random_order_device(std::uint64_t seed, Check check) {
  constexpr std::uint64_t kBoundless = std::uint64_t{1} << 44U;
  return make_sim_device({.profile = sim_profile("cpu"),
                          .budget_bytes = kBoundless,
                          .host_budget_bytes = kBoundless,
                          .check_races = check != Check::kVersions,
                          .check_versions = check != Check::kRaces,
                          .order_seed = seed});
}

// Returns the bytes that the pools still have in use after the executor is gone.
inline std::uint64_t run_steps(Device& device, const Tape& tape, const Schedule& schedule,
                               std::uint64_t steps = 3) {
  ExecutorRig rig(device, tape);
  const auto in_use = [&rig] {
    return rig.pool.statistics().in_use_bytes + rig.pinned.statistics().in_use_bytes;
  };
  const std::uint64_t before = in_use();
  {
    Executor executor(rig.parts(tape, schedule));
    StepLoop(rig, executor).run(steps);
  }
  return in_use() - before;
}

}  // namespace vdnn::testing
