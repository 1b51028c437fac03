// Every kind of layer in one network, in two and three spatial dimensions. Policies and budgets change no
// bit, and the peak is as predicted. Every op accesses only declared memory, and no op accesses released
// memory. The schedules pass the checker and the oracle.

#include "tests/train/every_layer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "tests/plan/oracle.h"
#include "tests/plan/tapes.h"
#include "tests/train/lives_run.h"
#include "tests/train/random_inputs.h"
#include "tests/train/training_runs.h"
#include "vdnn/checker.h"
#include "vdnn/classic_catalog.h"
#include "vdnn/session.h"

namespace vdnn::every_layer_test {
namespace {

constexpr std::uint64_t kLarge = std::uint64_t{1} << 30;

class EveryLayer : public ::testing::TestWithParam<Dims> {
 protected:
  static RunOptions options(Policy policy, std::uint64_t budget = kLarge) {
    return {.device = "cpu",
            .memory_bytes = budget,
            .host_memory_bytes = kLarge,
            .threads = 2,
            .policy = policy,
            .training = {.optimizer = AdamSpec{}, .clip_norm = 1.0F}};
  }
};

std::string train(const PlannedRun& run, const SessionOptions& session_options, std::uint64_t steps = 3) {
  Session session(run, session_options);
  for (std::uint64_t step = 0; step < steps; ++step) {
    const std::vector<std::vector<std::byte>> inputs = testing::random_inputs(*run.tape, step);
    const std::vector<Session::Bytes> spans(inputs.begin(), inputs.end());
    EXPECT_TRUE(std::isfinite(session.step(spans, 0.001F).loss));
  }
  EXPECT_EQ(session.device().counters().peak_committed_bytes, run.prediction.peak_bytes);
  return session.weights_sha256();
}

TEST_P(EveryLayer, OneHashAndThePredictedPeakUnderEveryPolicyAndBudget) {
  std::set<std::string> hashes;
  for (const Policy policy : testing::kPolicies) {
    const std::uint64_t smallest =
        plan_run(testing::every_layer_network(GetParam()), options(policy)).smallest_budget_bytes();
    for (const std::uint64_t budget : {smallest, kLarge}) {
      SCOPED_TRACE(to_string(policy));
      hashes.insert(
          train(plan_run(testing::every_layer_network(GetParam()), options(policy, budget)), {}, 5));
    }
  }
  EXPECT_EQ(hashes.size(), 1U);
}

TEST_P(EveryLayer, OpsTouchWhatTheyDeclareAndNothingElse) {
  for (const Policy policy : testing::kPolicies) {
    SCOPED_TRACE(to_string(policy));
    RunOptions checked = options(policy);
    const std::string hash = train(plan_run(testing::every_layer_network(GetParam()), checked), {});
    checked.page_aligned_blocks = true;
    EXPECT_EQ(train(plan_run(testing::every_layer_network(GetParam()), checked),
                    {.protect_released = true, .check_accesses = true}),
              hash);
  }
}

// Every value that the backward pass reads leaves the device between the passes. Either all values are
// recomputed, or every second one is offloaded and the others are recomputed. Addresses come from the pool or
// from the plan.
TEST_P(EveryLayer, WhatIsMadeAgainHasTheSameBits) {
  for (const bool checked : {false, true}) {
    RunOptions run_options = options(Policy::kOffloadNone);
    run_options.page_aligned_blocks = checked;
    const SessionOptions session{.protect_released = checked, .check_accesses = checked};
    const PlannedRun none = plan_run(testing::every_layer_network(GetParam()), run_options);
    const std::string expected = train(none, session);
    const PredictionOptions prediction{.profile = none.target.profile, .page_aligned_blocks = checked};
    const std::uint64_t alignment = plan_costs(*none.tape, prediction).alignment_bytes;
    for (const std::size_t offloaded : {0, 2}) {
      for (const std::uint64_t placement_alignment : {std::uint64_t{0}, alignment}) {
        SCOPED_TRACE(std::to_string(offloaded) + ", " + std::to_string(placement_alignment));
        PlannedRun run = plan_run(testing::every_layer_network(GetParam()), run_options);
        run.plan = testing::dropping_plan(*run.tape, offloaded, placement_alignment);
        run.schedule = make_schedule(*run.tape, run.plan);
        ASSERT_EQ(check_schedule(*run.tape, run.schedule), std::vector<std::string>{});
        run.prediction = predict(*run.tape, run.schedule, prediction);
        EXPECT_GT(recomputed_ops(run.schedule), 3U);
        EXPECT_EQ(train(run, session), expected);
      }
    }
  }
}

// Values are fetched from the host or recomputed several times.
TEST_P(EveryLayer, SeveralLivesHaveTheSameBits) {
  const PlannedRun none = plan_run(testing::every_layer_network(GetParam()), options(Policy::kOffloadNone));
  const std::string expected = train(none, {});
  for (const std::uint64_t seed : {0, 1, 2}) {
    const PlannedRun run = testing::with_several_lives(none, seed);
    ASSERT_EQ(check_schedule(*run.tape, run.schedule), std::vector<std::string>{});
    EXPECT_EQ(train(run, {}), expected) << "seed " << seed;
  }
}

TEST_P(EveryLayer, SchedulesPassCheckerAndOracleOnEveryCatalog) {
  const Network network = testing::every_layer_network(GetParam());
  const PlannedRun on_cpu = plan_run(testing::every_layer_network(GetParam()), options(Policy::kOffloadNone));
  const auto classic = make_classic_catalog();
  const TrainingOptions training{
      .optimizer = AdamSpec{}, .clip_norm = 1.0F, .results = {"conv.filter.gradient"}};
  for (const auto& tape : {on_cpu.tape, lower_to_tape(network, *classic, training),
                           lower_to_evaluation_tape(network, *classic)}) {
    for (const Policy policy : testing::kPolicies) {
      for (const AlgorithmPreference preference :
           {AlgorithmPreference::kMemory, AlgorithmPreference::kPerformance}) {
        SCOPED_TRACE(to_string(policy) + " " + to_string(preference));
        const Schedule schedule =
            make_schedule(*tape, make_plan(*tape, {.policy = policy, .preference = preference}));
        EXPECT_EQ(check_schedule(*tape, schedule), std::vector<std::string>{});
        EXPECT_EQ(testing::Oracle(*tape, schedule).objection(schedule, testing::Exploration::kConflicts), "");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Spaces, EveryLayer, ::testing::Values(Dims{3, 2, 8, 10}, Dims{2, 1, 8, 10, 12}),
                         [](const auto& test) { return test.param.size() == 4 ? "Plane" : "Volume"; });

// --- custom layers are checked like built-in ones ----------------------------------------------------------

TEST(EveryLayerDeath, ACustomLayerThatTouchesMoreThanItDeclaresIsNamed) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer does not survive the fork of a process with threads";
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  // The address is past the committed memory, where the address sanitizer poisons nothing, so the page itself
  // faults.
  const std::string caught = "vdnn: work 'stray.forward' touched an address";
  EXPECT_DEATH(
      {
        NetworkBuilder net("stray", {2, 3, 8, 8});
        const Tensor x = net.custom("stray", {net.relu("relu", net.input())},
                                    std::make_shared<testing::Doubling>(std::uint64_t{64} << 10));
        net.softmax_cross_entropy("loss", net.fully_connected("fc", x, {.outputs = 2}));
        const PlannedRun run = plan_run(std::move(net).build(), {.device = "cpu",
                                                                 .memory_bytes = kLarge,
                                                                 .threads = 1,
                                                                 .policy = Policy::kOffloadAll,
                                                                 .page_aligned_blocks = true});
        train(run, {.check_accesses = true});
      },
      caught);
}

}  // namespace
}  // namespace vdnn::every_layer_test
