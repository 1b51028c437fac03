#pragma once
// The trial of a random network: everything that has to hold for it, whatever it looks like.
//
//   * On paper, with the catalogs of `cpu` and of the vDNN paper, under every policy and both preferences of
//     algorithms: neither the checker nor the oracle objects to the schedule, on a simulated device no
//     permitted order of execution races or reads stale contents, and it takes just the memory that was
//     predicted, refuses a granule less, and gives everything back.
//   * For real on `cpu`, under every policy, in the smallest budget and in one drawn between that and twice
//     what `baseline` takes: the same losses, results, weights and optimizer state to the last bit; the peak
//     and the page-locked memory that were predicted; no call of the system's allocators after the first
//     step; and a granule less than the smallest budget is refused.
//
// The trial is made of functions that say what is wrong, so that tests can hand them what is (see
// network_trial_test.cpp).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/random/random_network.h"
#include "vdnn/planned_run.h"

namespace vdnn::testing {

// A sentence each; empty: nothing is wrong.
using Findings = std::vector<std::string>;

// What simulated runs stand on: `cpu` with granules so small that hardly a byte is hidden in one.
SimProfile finest_profile();

// `predicted` is for finest_profile(). `seed` draws the order of execution.
Findings judge_schedule(const Tape& tape, const Schedule& schedule, const Prediction& predicted,
                        std::uint64_t seed);

// A few steps for real.
struct Outcome {
  std::string digest;  // of losses, results, weights, running statistics and optimizer state
  Findings findings;
};
Outcome judge_run(const PlannedRun& run, std::uint64_t seed);

// What to try of a network; by default everything.
struct TrialOptions {
  std::optional<Policy> policy;
  std::optional<std::uint64_t> budget_bytes;  // of real runs, instead of the two
};
Findings judge_network(const RandomNetwork& random, const TrialOptions& options = {});

}  // namespace vdnn::testing
