#pragma once
// The trial of a random network: everything that has to hold for it, whatever it looks like.
//
//   * On paper, for training and evaluation, with the catalogs of `cpu` and of the vDNN paper, under every
//     policy and both preferences of algorithms, and with several lives of values (lives_plan.h): neither the
//     checker nor the oracle objects to the schedule, a file gives it back as it was, on a simulated device a
//     random one of the permitted orders of execution does not race or read stale contents, and the schedule
//     takes just the memory that was predicted, fails in a granule less, and gives everything back. The least
//     workspace limit is kept, a byte less refused.
//   * For real on `cpu`, under every policy, in the smallest budget and in one drawn between that and twice
//     what `baseline` takes, and in each of these budgets under what auto settles on: the same losses,
//     results, gradients (as momentum or moments, where the optimizer has such), weights and optimizer state
//     to the last bit, an evaluation between the steps included; the peak and the page-locked memory that
//     were predicted; no call of the system's allocators after the first step; and a granule less than the
//     smallest budget is refused. The same with several lives of values, in just the memory that is predicted
//     for them. Once more under a policy by seed: with random delays, or watched, so that
//     the process ends, naming the op, where one touches what it does not declare or what has been released.
//     (What a run takes with protect_released is not predicted.)
//
// The trial is made of functions that say what is wrong, so that tests can hand them what is (see
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

// What simulated runs stand on: `cpu` with granules so small that hardly a byte is hidden in one.
SimProfile finest_profile();

// `predicted` is for finest_profile(). `seed` draws the order of execution.
Findings judge_schedule(const Tape& tape, const Schedule& schedule, const Prediction& predicted,
                        std::uint64_t seed);

// A few steps for real. What has to be the same in every run, by what it is of: losses and results of
// training with the weights, running statistics and optimizer state in the end; and those of an evaluation,
// where there is memory for one, by its batch.
struct Outcome {
  std::map<std::string, std::string> digests;
  Findings findings;
};
Outcome judge_run(const PlannedRun& run, const SessionOptions& options);

// What to try of a network; by default everything.
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
