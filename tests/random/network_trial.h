#pragma once
// The trial of a random network: the properties that must hold for any network.
//
//   * On paper, for training and evaluation, with the catalogs of `cpu` and of the vDNN paper, under every
//     policy and both preferences of algorithms, and with several lives of values (lives_plan.h). Checker and
//     oracle accept the schedule, and a file returns it unchanged. On a simulated device, a random permitted
//     order of execution neither races nor reads stale contents. The schedule takes exactly the predicted
//     memory, fails with one granule less, and releases everything. The least workspace limit is kept, and
//     one byte less is refused.
//   * For real on `cpu`, under every policy, in the smallest budget and in one drawn between it and twice the
//     peak of `baseline`, and in each of these budgets under the policy that auto chooses. Losses, results,
//     gradients (as momentum or moments, where the optimizer has them), weights and optimizer state are the
//     same to the last bit, an evaluation between the steps included. Peak and page-locked memory are as
//     predicted, no step after the first calls the system's allocators, and one granule less than the
//     smallest budget is refused. The same holds with several lives of values, in exactly the memory
//     predicted for them. One more run, under a policy drawn by seed, has random delays or watched accesses:
//     the process then ends, naming the op, if an op touches undeclared or released memory. (The memory of a
//     run with protect_released is not predicted.)
//
// The trial consists of functions that return errors, so that tests can give them faulty input (see
// network_trial_test.cpp).

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/random/random_network.h"
#include "vdnn/planned_run.h"
#include "vdnn/session.h"

namespace vdnn::testing {

// A sentence each; empty: nothing is wrong.
using Findings = std::vector<std::string>;

// The device of simulated runs: `cpu` with granules so small that rounding hides hardly a byte.
SimProfile finest_profile();

// `predicted` is for finest_profile(). `seed` draws the order of execution.
Findings judge_schedule(const Tape& tape, const Schedule& schedule, const Prediction& predicted,
                        std::uint64_t seed);

// A few real steps, and the results that must be the same in every run: losses and results of training with
// the final weights, running statistics and optimizer state; and those of an evaluation, if there is memory
// for one, by its batch.
struct Outcome {
  std::map<std::string, std::string> digests;
  Findings findings;
};
Outcome judge_run(const PlannedRun& run, const SessionOptions& options);

// The parts of the trial; by default all.
struct TrialOptions {
  std::optional<Policy> policy;
  std::optional<std::uint64_t> budget_bytes;  // of real runs, instead of the two
};
struct Trial {
  Findings findings;
  // How often something has been done: "training" and "evaluation" runs, those of them "compared" with one
  // before, what "auto settles on".
  std::map<std::string, int> counts;
};
Trial judge_network(const RandomNetwork& random, const TrialOptions& options = {});

// --seed=17 [--policy=all] [--budget=1048576]; nothing at all is no seed. Throws InvalidArgument for anything
// else.
struct TrialCommand {
  std::optional<std::uint64_t> seed;
  TrialOptions options;
};
TrialCommand parse_trial(std::span<const std::string_view> arguments);

}  // namespace vdnn::testing
