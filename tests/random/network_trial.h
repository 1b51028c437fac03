#pragma once
// The trial of a random network checks the properties that must hold for any network.
//
//   * On paper, it covers training and evaluation, the catalogs of `cpu` and of the vDNN paper, every policy,
//     both preferences of algorithms, and several lives of values (lives_plan.h). Checker and oracle accept
//     the schedule, and a file returns it unchanged. On a simulated device, a random permitted order of
//     execution neither races nor reads stale contents. The schedule uses exactly the predicted memory, fails
//     with one granule less, and releases everything. Planning meets the least workspace limit and refuses
//     one byte less.
//   * On `cpu`, it runs every policy in the smallest budget and in a random one between that and twice the
//     peak of `baseline`. In each of these budgets it also runs the policy that auto chooses. Losses,
//     results, gradients (as momentum or moments, if the optimizer has them), weights and optimizer state are
//     the same to the last bit. That includes an evaluation between the steps. Peak and page-locked memory
//     are as predicted. No step after the first calls the system's allocators. One granule less than the
//     smallest budget is refused. The same holds with several lives of values, in exactly the memory
//     predicted for them. One more run, under a policy drawn by seed, has random delays or watched accesses.
//     With watched accesses, the process ends and names the op if an op touches undeclared or released
//     memory. (The memory of a run with protect_released is not predicted.)
//
// The trial consists of functions that return errors, so that network_trial_test.cpp can pass them faulty
// input.

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

// One sentence per error; empty if nothing is wrong.
using Findings = std::vector<std::string>;

// The device of simulated runs: `cpu` with tiny granules, so that rounding hides hardly a byte.
SimProfile finest_profile();

// `predicted` is for finest_profile(). `seed` draws the order of execution.
Findings judge_schedule(const Tape& tape, const Schedule& schedule, const Prediction& predicted,
                        std::uint64_t seed);

// A few real steps, and the results that must be the same in every run. For training these are losses,
// results, final weights, running statistics and optimizer state. An evaluation, if memory suffices, adds its
// results under its batch.
struct Outcome {
  std::map<std::string, std::string> digests;
  Findings findings;
};
Outcome judge_run(const PlannedRun& run, const SessionOptions& options);

// Restricts the trial; by default it has all parts.
struct TrialOptions {
  std::optional<Policy> policy;
  std::optional<std::uint64_t> budget_bytes;  // of real runs, instead of the two budgets
};
struct Trial {
  Findings findings;
  // Counts of "training" and "evaluation" runs, of those "compared" with an earlier run, and of the policies
  // that "auto settles on".
  std::map<std::string, int> counts;
};
Trial judge_network(const RandomNetwork& random, const TrialOptions& options = {});

// Parsed from --seed=17 [--policy=all] [--budget=1048576]. Without arguments there is no seed. Throws
// InvalidArgument for anything else.
struct TrialCommand {
  std::optional<std::uint64_t> seed;
  TrialOptions options;
};
TrialCommand parse_trial(std::span<const std::string_view> arguments);

}  // namespace vdnn::testing
