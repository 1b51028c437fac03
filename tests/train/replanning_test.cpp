// A session plans anew between two steps. Weights have the same bits as without the new plan, and memory is
// as predicted. After any failure the previous plan stays in force.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "src/base/median.h"
#include "tests/data/samples.h"
#include "tests/extent.h"
#include "tests/fakes/failing_device.h"
#include "tests/temporary_directory.h"
#include "tests/train/every_layer.h"
#include "tests/train/random_inputs.h"
#include "tests/train/training_runs.h"
#include "vdnn/checkpoint.h"
#include "vdnn/error.h"
#include "vdnn/trainer.h"

namespace vdnn::replanning_test {
namespace {

using ::testing::HasSubstr;
using Outcome = ReplanReport::Outcome;

constexpr std::uint64_t kAmple = std::uint64_t{4} << 30U;
constexpr std::uint64_t kSteps = 12;

RunOptions options(const std::string& model, Policy policy, std::uint64_t budget = kAmple) {
  return {.model = {.model = model, .batch = 8},
          .device = "cpu",
          .memory_bytes = budget,
          .host_memory_bytes = kAmple,
          .threads = 1,
          .policy = policy,
          .training = {.optimizer = SgdSpec{.momentum = 0.9F, .weight_decay = 5e-4F}}};
}

// Costs of the run on a link that is `times` times as fast as expected.
MeasuredCosts with_link(const PlannedRun& run, double times) {
  MeasuredCosts costs = expected_costs(run);
  for (LinkRates* rates : {&costs.link_bytes_per_second, &costs.link_bytes_per_second_both_ways}) {
    rates->device_to_host *= times;
    rates->host_to_device *= times;
  }
  return costs;
}

bool same_schedule(const Schedule& a, const Schedule& b) {
  return a.instructions == b.instructions && a.arena_bytes == b.arena_bytes;
}

void one_step(Session& session) {
  const auto inputs = testing::random_inputs(*session.run().tape, session.steps());
  const std::vector<Session::Bytes> spans(inputs.begin(), inputs.end());
  session.step(spans, 0.02F);
}

std::vector<TraceEvent> traced_steps(Session& session, int steps) {
  session.device().set_tracing(true);
  for (int step = 0; step < steps; ++step) {
    one_step(session);
  }
  session.finish();
  session.device().set_tracing(false);
  return session.device().take_trace();
}

std::string weights_without(const PlannedRun& run, std::uint64_t steps) {
  Session session(run, {.seed = 7});
  while (session.steps() < steps) {
    one_step(session);
  }
  return session.weights_sha256();
}

// --- training ----------------------------------------------------------------------------------------------

// Instrumented planning is slow, so sanitizers test fewer models.
std::vector<std::string> models() {
  std::vector<std::string> names{"lenet", "fashion-vgg", "resnet20"};
  names.resize(testing::extent({.usual = 3, .under_sanitizers = 1, .in_long_run = 3}));
  return names;
}

struct Case {
  std::string model;
  Policy policy;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& model : models()) {
    for (const Policy policy : {Policy::kOffloadNone, Policy::kOffloadAll, Policy::kOptimal}) {
      all.push_back({.model = model, .policy = policy});
    }
  }
  return all;
}

class Replanning : public ::testing::TestWithParam<Case> {
 protected:
  static TrainingResult train(const PlannedRun& run, const TrainOptions& more) {
    TrainOptions options = more;
    options.learning_rate = 0.02F;
    options.steps = kSteps;
    options.session.seed = 7;
    TrainingResult result = Trainer(run, testing::data_for(run, "synthetic"), options).train({});
    EXPECT_EQ(result.peak_bytes, result.predicted_peak_bytes);
    EXPECT_EQ(result.system_allocations_after_first_step, 0U);
    return result;
  }
  // The smallest budget for static policies; `optimal` gets more, so that it has a choice.
  static PlannedRun tight_run() {
    const std::uint64_t least =
        plan_run(options(GetParam().model, GetParam().policy)).smallest_budget_bytes();
    return plan_run(options(GetParam().model, GetParam().policy,
                            GetParam().policy == Policy::kOptimal ? least * 5 / 4 : least));
  }
};

INSTANTIATE_TEST_SUITE_P(Networks, Replanning, ::testing::ValuesIn(cases()), [](const auto& test) {
  std::string name = test.param.model + "_" + to_string(test.param.policy);
  std::ranges::replace(name, '-', '_');
  return name;
});

// Trains on a slowed link and plans anew after six steps with their times.
TEST_P(Replanning, EndsWithTheBitsOfTheRunWithout) {
  const PlannedRun run = tight_run();
  const std::string usual = train(run, {}).weights_sha256;
  std::vector<vdnn::Replanning> told;
  constexpr double kLink = 0.2;
  TrainOptions with{.session = {.link_gbytes_per_second = kLink},
                    .replan = ReplanRule{.after_steps = 6},
                    .replanned = [&](const vdnn::Replanning& replanning) { told.push_back(replanning); },
                    .learn = true};
  const TrainingResult result = train(run, with);
  EXPECT_EQ(result.weights_sha256, usual);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].step, 6U);
  EXPECT_EQ(told[0].measured_steps, 5U);
  EXPECT_EQ(told[0].report.expected_step_seconds, run.prediction.step_seconds);
  EXPECT_EQ(told[0].report.reason, "");
  EXPECT_FALSE(told[0].report.algorithms_changed);
  // Here the measured times decide whether a new plan pays. PlansForTheLinkThatThereIs has fixed costs.
  const bool replanned = told[0].report.outcome == Outcome::kReplanned;
  EXPECT_EQ(told[0].report.predicted_step_seconds <= 0.99 * told[0].report.corrected_step_seconds, replanned);
  EXPECT_EQ(told[0].report.predicted_step_seconds < told[0].report.corrected_step_seconds, replanned);
  EXPECT_GT(told[0].step_seconds_before.value(), 0);
  EXPECT_GT(told[0].step_seconds_after.value(), 0);
  EXPECT_EQ(told[0].committed_bytes_before, told[0].report.predicted_peak_bytes_before);
  EXPECT_EQ(told[0].committed_bytes_after, told[0].report.predicted_peak_bytes);
  EXPECT_EQ(result.learned->setting, run.measured_setting());
  EXPECT_EQ(result.learned->link_gbytes_per_second, kLink);
}

// Changes to the plan of each static policy and back. The budget is that of the larger of the two plans, so
// that both arenas never fit together.
TEST_P(Replanning, ChangesAPlanForAnyOtherInTheMiddle) {
  const std::string usual = weights_without(plan_run(options(GetParam().model, GetParam().policy)), kSteps);
  for (const Policy other :
       {Policy::kBaseline, Policy::kOffloadNone, Policy::kOffloadAll, Policy::kOffloadConv}) {
    SCOPED_TRACE(to_string(other));
    PlannedRun run = plan_run(options(GetParam().model, GetParam().policy));
    const std::uint64_t budget =
        std::max(run.prediction.peak_bytes, plan_run(options(GetParam().model, other)).prediction.peak_bytes);
    run = plan_run(options(GetParam().model, GetParam().policy, budget));
    Session session(run, {.seed = 7});
    for (const Policy policy : {other, GetParam().policy}) {
      one_step(session);
      one_step(session);
      const ReplanReport report = session.replan(expected_costs(run), {.policy = policy});
      ASSERT_EQ(report.outcome, Outcome::kReplanned) << report.reason;
      const Prediction& prediction = session.run().prediction;
      EXPECT_EQ(session.run().plan.options.policy, policy);
      EXPECT_EQ(report.predicted_peak_bytes, prediction.peak_bytes);
      const DeviceCounters before = session.device().counters();
      one_step(session);
      one_step(session);
      const DeviceCounters after = session.device().counters();
      EXPECT_EQ(after.committed_bytes, prediction.peak_bytes);
      EXPECT_EQ(after.commits, before.commits);
      EXPECT_EQ(after.pinned_allocations, before.pinned_allocations);
      EXPECT_EQ(after.pinned_bytes, before.pinned_bytes);
    }
    while (session.steps() < kSteps) {
      one_step(session);
    }
    EXPECT_LE(session.device().counters().peak_committed_bytes, budget);
    EXPECT_EQ(session.weights_sha256(), usual);
  }
}

// With another link speed `optimal` moves other bytes, and the weights have the same bits.
TEST(ReplanningOptimal, PlansForTheLinkThatThereIs) {
  for (const std::string& model : models()) {
    SCOPED_TRACE(model);
    const std::uint64_t least = plan_run(options(model, Policy::kOptimal)).smallest_budget_bytes();
    const PlannedRun run = plan_run(options(model, Policy::kOptimal, least * 11 / 10));
    const std::string usual = weights_without(run, kSteps);
    Session session(run, {.seed = 7});
    for (const double times : {0.01, 100.0}) {
      SCOPED_TRACE(times);
      one_step(session);
      const Schedule before = session.run().schedule;
      const ReplanReport report = session.replan(with_link(run, times));
      EXPECT_FALSE(report.algorithms_changed);
      // On the fast link, the plan for the slow link may already be the fastest, if it moves nothing.
      if (times < 1) {
        EXPECT_EQ(report.outcome, Outcome::kReplanned) << report.reason;
      }
      EXPECT_NE(report.outcome, Outcome::kRefused) << report.reason;
      const bool replanned = report.outcome == Outcome::kReplanned;
      EXPECT_EQ(same_schedule(session.run().schedule, before), !replanned);
      EXPECT_EQ(report.predicted_step_seconds <= 0.99 * report.corrected_step_seconds, replanned);
      one_step(session);
      EXPECT_EQ(session.device().counters().committed_bytes, session.run().prediction.peak_bytes);
    }
    while (session.steps() < kSteps) {
      one_step(session);
    }
    EXPECT_EQ(session.weights_sha256(), usual);
  }
}

// Covers everything on which a step depends: dropout by step, running statistics, Adam's count of steps, a
// custom layer.
TEST(ReplanningOfEveryLayer, KeepsEverythingThatStepsDependOn) {
  const RunOptions asked{.device = "cpu",
                         .memory_bytes = kAmple,
                         .host_memory_bytes = kAmple,
                         .threads = 1,
                         .policy = Policy::kOffloadAll,
                         .training = {.optimizer = AdamSpec{}, .clip_norm = 1.0F}};
  const PlannedRun run = plan_run(testing::every_layer_network({2, 3, 8, 8}), asked);
  Session usual(run, {.seed = 7});
  Session session(run, {.seed = 7});
  for (const Policy policy : {Policy::kOffloadNone, Policy::kOptimal, Policy::kBaseline, Policy::kOptimal}) {
    for (int step = 0; step < 3; ++step) {
      one_step(usual);
      one_step(session);
    }
    ASSERT_EQ(session.replan(with_link(run, 0.01), {.policy = policy}).outcome, Outcome::kReplanned);
    const auto inputs = testing::random_inputs(*run.tape, 99);
    const std::vector<Session::Bytes> spans(inputs.begin(), inputs.end());
    ASSERT_EQ(session.evaluation_batch(), usual.evaluation_batch());
    ASSERT_EQ(session.evaluate(spans).loss, usual.evaluate(spans).loss);
  }
  one_step(usual);
  one_step(session);
  EXPECT_EQ(session.weights_sha256(), usual.weights_sha256());
  EXPECT_EQ(session.steps(), usual.steps());
}

// Runs with random delays in the streams, and released memory is inaccessible until its next use. Memory that
// one plan releases and the next one commits is accessible again. Neither plan uses the other's memory.
TEST(ReplanningUnderDebugging, SurvivesDelaysAndProtection) {
  RunOptions asked = options("lenet", Policy::kOffloadAll);
  asked.page_aligned_blocks = true;
  const PlannedRun run = plan_run(asked);
  Session session(run, {.seed = 7, .delay_seed = 3, .protect_released = true});
  for (const Policy policy :
       {Policy::kOptimal, Policy::kBaseline, Policy::kOffloadConv, Policy::kOffloadNone}) {
    one_step(session);
    one_step(session);
    ASSERT_EQ(session.replan(with_link(run, 0.01), {.policy = policy}).outcome, Outcome::kReplanned);
  }
  while (session.steps() < kSteps) {
    one_step(session);
  }
  EXPECT_EQ(session.device().counters().committed_bytes, session.run().prediction.peak_bytes);
  EXPECT_EQ(session.weights_sha256(), weights_without(run, kSteps));
}

// Combines repeated replanning with evaluation, epochs, shuffled batches and a trace.
TEST(ReplanningInATrainer, TakesTurnsWithEvaluationAndTraces) {
  const PlannedRun run = plan_run(options("lenet", Policy::kOffloadAll));
  DatasetSplits data = testing::data_for(run, "synthetic");
  data.training = std::make_unique<testing::FirstSamples>(std::move(data.training), 5 * 8);
  data.test =
      std::make_unique<testing::FirstSamples>(std::move(testing::data_for(run, "synthetic").training), 12);
  const auto train = [&](bool replans) {
    TrainOptions with{.learning_rate = 0.02F, .epochs = 5, .session = {.seed = 7}, .trace = true};
    std::vector<std::uint64_t> steps;
    if (replans) {
      with.replan =
          ReplanRule{.after_steps = 6, .repeatedly = true, .options = {.policy = Policy::kOffloadNone}};
      with.replanned = [&](const vdnn::Replanning& replanning) {
        steps.push_back(replanning.step);
        EXPECT_EQ(replanning.report.outcome, Outcome::kReplanned) << replanning.report.reason;
      };
      with.learn = true;
    }
    TrainingResult result = Trainer(run, data, with).train({});
    EXPECT_EQ(steps, replans ? std::vector<std::uint64_t>({6, 12, 18, 24}) : std::vector<std::uint64_t>());
    EXPECT_EQ(result.peak_bytes, result.predicted_peak_bytes);
    EXPECT_EQ(result.system_allocations_after_first_step, 0U);
    EXPECT_EQ(result.learned.has_value(), replans);
    return result;
  };
  const TrainingResult usual = train(false);
  const TrainingResult result = train(true);
  EXPECT_EQ(result.weights_sha256, usual.weights_sha256);
  EXPECT_EQ(result.test_accuracy, usual.test_accuracy);
  const auto launches = [&](const TrainingResult& of) {
    return std::ranges::count(of.trace, run.tape->op(0).name, &TraceEvent::name);
  };
  // The trace has the last four steps, under either plan, and possibly the end of the step before them.
  for (const TrainingResult* of : {&usual, &result}) {
    EXPECT_GE(launches(*of), 4);
    EXPECT_LE(launches(*of), 5);
  }
}

// The result's step times are those of the plan that the result describes.
TEST(ReplanningInATrainer, TimesThePlanInForce) {
  const PlannedRun run = plan_run(options("lenet", Policy::kOffloadAll));
  for (const bool swaps : {false, true}) {
    SCOPED_TRACE(swaps);
    TrainOptions with{.learning_rate = 0.02F, .steps = kSteps, .replan = ReplanRule{.after_steps = 6}};
    with.session.link_gbytes_per_second = 0.05;
    if (swaps) {
      with.replan->options.policy = Policy::kOffloadNone;
    }
    std::vector<double> rates;
    const TrainingResult result =
        Trainer(run, testing::data_for(run, "synthetic"), with).train([&](const StepReport& report) {
          rates.push_back(report.images_per_second);
        });
    ASSERT_EQ(rates.size(), kSteps);
    // Two steps are not timed: the first, and the seventh, which follows the planning.
    std::vector<double> seconds;
    for (std::size_t step = swaps ? 7 : 1; step < kSteps; ++step) {
      if (step != 6) {
        seconds.push_back(static_cast<double>(run.batch()) / rates[step]);
      }
    }
    EXPECT_DOUBLE_EQ(result.step_seconds, median(seconds));
  }
}

TEST(ReplanningInATrainer, SaysSoWhereNoStepWasTimed) {
  const PlannedRun run = plan_run(options("lenet", Policy::kOffloadAll));
  std::vector<vdnn::Replanning> told;
  TrainOptions with{.learning_rate = 0.02F, .steps = kSteps, .replan = ReplanRule{.after_steps = 6}};
  with.replanned = [&](const vdnn::Replanning& replanning) { told.push_back(replanning); };
  with.save = [](Session&) {};
  with.save_every = 1;  // a checkpoint between all steps
  Trainer(run, testing::data_for(run, "synthetic"), with).train({});
  ASSERT_EQ(told.size(), 1U);
  EXPECT_FALSE(told[0].step_seconds_before);
  EXPECT_FALSE(told[0].step_seconds_after);
}

// --- learned costs -----------------------------------------------------------------------------------------

class ReplanningFiles : public testing::TemporaryDirectory {};

TEST_F(ReplanningFiles, WhatWasLearnedIsAProfileForTheNextRun) {
  const RunOptions asked = options(models().back(), Policy::kOffloadAll);
  Session session(plan_run(asked), {.seed = 7, .link_gbytes_per_second = 0.5});
  one_step(session);
  const MeasuredCosts learned = session.learn(traced_steps(session, 5));
  for (const Op& op : session.run().tape->ops()) {
    const auto& times = learned.ops.at(op.name);
    const OpId id = static_cast<OpId>(&op - session.run().tape->ops().data());
    for (std::uint32_t index = 0; index < op.algorithms.size(); ++index) {
      const std::uint64_t ran = session.run().schedule.algorithms[id];
      EXPECT_EQ(times.at(op.algorithms[index].name)->launches >= 5, index == ran) << op.name;
    }
  }
  // The link is slowed to half of 10^9 bytes per second, so the learned rate cannot be higher.
  EXPECT_LE(learned.link_bytes_per_second.device_to_host, 0.5e9);
  EXPECT_LE(learned.link_bytes_per_second.host_to_device, 0.5e9);
  EXPECT_GT(learned.link_bytes_per_second.device_to_host, 0.05e9);
  const MeasuredCosts again = parse_measured_costs(to_text(learned));
  EXPECT_EQ(again.ops, learned.ops);
  EXPECT_EQ(to_text(again), to_text(learned));

  RunOptions next = asked;
  next.profile = directory_ / "learned.json";
  std::ofstream(*next.profile) << to_text(learned);
  next.recorded_algorithms = {};
  const PlannedRun planned = plan_run(next);
  EXPECT_EQ(planned.measured->ops, learned.ops);
  EXPECT_EQ(predict_policy(with_costs(plan_run(asked), learned), planned.plan.options).step_seconds,
            planned.prediction.step_seconds);
}

TEST_F(ReplanningFiles, ACheckpointBehindItGoesOnWithTheSameWeights) {
  for (const bool change_algorithms : {false, true}) {
    SCOPED_TRACE(change_algorithms);
    const RunOptions asked = options(models().back(), Policy::kOffloadAll);
    const PlannedRun run = plan_run(asked);
    Session session(run, {.seed = 7});
    one_step(session);
    ASSERT_GT(session.evaluation_batch(), 0) << "evaluation must have a plan that changes";
    MeasuredCosts costs = expected_costs(run);
    if (change_algorithms) {
      // According to these costs, the algorithms that ran are slow, and other algorithms are faster.
      for (OpId id = 0; id < run.tape->ops().size(); ++id) {
        const Op& op = run.tape->op(id);
        costs.ops[op.name][op.algorithms[run.schedule.algorithms[id]].name]->seconds = 1;
      }
    }
    const ReplanReport report =
        session.replan(costs, {.change_algorithms = change_algorithms, .policy = Policy::kOffloadConv});
    ASSERT_EQ(report.outcome, Outcome::kReplanned) << report.reason;
    ASSERT_EQ(report.algorithms_changed, change_algorithms);
    one_step(session);
    save_checkpoint(directory_ / "checkpoint", session);
    const Checkpoint checkpoint(directory_ / "checkpoint");
    Session resumed(plan_resumed_run(checkpoint, run.own_network(), asked));
    resumed.restore(checkpoint.state(resumed.run()));
    for (int step = 0; step < 3; ++step) {
      one_step(session);
      one_step(resumed);
    }
    EXPECT_EQ(resumed.weights_sha256(), session.weights_sha256());
    // Evaluation uses the algorithms of training, whichever plan is in force.
    const auto inputs = testing::random_inputs(*run.tape, 99);
    const std::vector<Session::Bytes> spans(inputs.begin(), inputs.end());
    ASSERT_EQ(session.evaluation_batch(), resumed.evaluation_batch());
    EXPECT_EQ(session.evaluate(spans).loss, resumed.evaluate(spans).loss);
  }
}

// --- failures ----------------------------------------------------------------------------------------------

class RefusedReplanning : public ::testing::Test {
 protected:
  PlannedRun run_ = plan_run(options("lenet", Policy::kOffloadAll));
};

TEST_F(RefusedReplanning, APlanThatDoesNotFitLeavesTheOneBeforeInForce) {
  run_ = plan_run(options("lenet", Policy::kOffloadAll, run_.smallest_budget_bytes()));
  const std::string usual = weights_without(run_, 6);
  Session session(run_, {.seed = 7});
  one_step(session);
  const ReplanReport report = session.replan(expected_costs(run_), {.policy = Policy::kBaseline});
  EXPECT_EQ(report.outcome, Outcome::kRefused);
  EXPECT_THAT(report.reason, HasSubstr("policy baseline on cpu needs "));
  EXPECT_EQ(report.predicted_peak_bytes, run_.prediction.peak_bytes);
  EXPECT_TRUE(same_schedule(session.run().schedule, run_.schedule));
  while (session.steps() < 6) {
    one_step(session);
  }
  EXPECT_EQ(session.weights_sha256(), usual);
}

TEST_F(RefusedReplanning, APlanThatIsNoFasterIsNotTaken) {
  Session session(run_, {.seed = 7});
  one_step(session);
  const ReplanReport report = session.replan(with_link(run_, 0.1));
  EXPECT_EQ(report.outcome, Outcome::kKept);
  EXPECT_GT(report.corrected_step_seconds, report.expected_step_seconds);
  EXPECT_EQ(report.predicted_step_seconds, report.corrected_step_seconds);
  EXPECT_EQ(session.run().prediction.step_seconds, report.corrected_step_seconds);
}

TEST_F(RefusedReplanning, CostsOfSomethingElseAreRefusedAndNothingChanges) {
  Session session(run_, {.seed = 7});
  one_step(session);
  RunOptions other = options("lenet", Policy::kOffloadAll);
  other.model.batch = 4;
  EXPECT_THAT(testing::problem<InvalidArgument>([&] { session.replan(expected_costs(plan_run(other))); }),
              HasSubstr("'batch' is 4 in the file and would be 8 here"));
  EXPECT_THAT(testing::problem<InvalidArgument>([&] { session.learn({}); }),
              HasSubstr("nothing to learn from"));
  while (session.steps() < 4) {
    one_step(session);
  }
  EXPECT_EQ(session.weights_sha256(), weights_without(run_, 4));
}

TEST_F(RefusedReplanning, CostsThatCannotBeAreRefusedAndNothingChanges) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Session session(run_, {.seed = 7});
  one_step(session);
  for (const double wrong : {0.0, -1.0, kInfinity, std::numeric_limits<double>::quiet_NaN()}) {
    SCOPED_TRACE(wrong);
    MeasuredCosts costs = expected_costs(run_);
    costs.ops.begin()->second.begin()->second->seconds = wrong;
    EXPECT_THAT(testing::problem<InvalidArgument>([&] { session.replan(costs); }),
                HasSubstr("the time of '" + costs.ops.begin()->first));
    costs = expected_costs(run_);
    costs.link_bytes_per_second.host_to_device = wrong;
    EXPECT_THAT(testing::problem<InvalidArgument>([&] { session.replan(costs); }),
                HasSubstr("a rate of the link"));
  }
  MeasuredCosts costs = expected_costs(run_);
  costs.launch_seconds = -1;
  EXPECT_THAT(testing::problem<InvalidArgument>([&] { session.replan(costs); }),
              HasSubstr("the fixed time of a copy"));
  while (session.steps() < 4) {
    one_step(session);
  }
  EXPECT_EQ(session.weights_sha256(), weights_without(run_, 4));
}

TEST_F(RefusedReplanning, StepsInFlightAreInTheWay) {
  Session session(run_, {.seed = 7});
  const auto inputs = testing::random_inputs(*run_.tape, 0);
  std::vector<AddressRange> staged;
  staged.reserve(inputs.size());
  for (const auto& input : inputs) {
    staged.push_back(session.pinned().allocate_for_host(input.size()).value());
  }
  const StepTicket ticket = session.submit(staged, 0);
  EXPECT_THAT(testing::problem<InvalidArgument>([&] { session.replan(expected_costs(run_)); }),
              HasSubstr("1 steps are in flight"));
  session.wait(ticket);
  EXPECT_EQ(session.replan(expected_costs(run_)).outcome, Outcome::kKept);
  for (const AddressRange& block : staged) {
    session.pinned().free(block, {});
  }
}

TEST_F(RefusedReplanning, TooFewStepsAreRefusedBeforeTheFirst) {
  const DatasetSplits data = testing::data_for(run_, "synthetic");
  const auto refusal = [&](const TrainOptions& with) {
    return testing::problem<InvalidArgument>([&] { Trainer(run_, data, with); });
  };
  EXPECT_THAT(refusal({.steps = 50, .replan = ReplanRule{.after_steps = 5}}),
              HasSubstr("planning anew after 5 steps: at least 6"));
  EXPECT_THAT(refusal({.steps = 6, .replan = ReplanRule{.after_steps = 6}}),
              HasSubstr("after 6 steps: none would follow, there are 6 to run"));
  EXPECT_THAT(refusal({.steps = 5, .learn = true}), HasSubstr("learning from a training of 5 steps"));
}

// Each device call of a replanning fails once. Then either the previous or the new plan continues, in its
// predicted memory, with the usual bits.
TEST_F(RefusedReplanning, WhateverCallFailsSomePlanGoesOn) {
  run_ = plan_run(options("lenet", Policy::kOffloadAll));
  const std::string usual = weights_without(run_, 6);
  std::size_t refused = 0;
  for (std::uint64_t fail_at = 1;; ++fail_at) {
    SCOPED_TRACE("call " + std::to_string(fail_at));
    DeviceFaults faults;
    faults.fail_at = fail_at;
    std::optional<Session> session;
    session.emplace(run_, SessionOptions{.seed = 7, .wrap_device = [&](std::unique_ptr<Device> cpu) {
                                           return std::make_unique<FailingDevice>(std::move(cpu), faults);
                                         }});
    one_step(*session);
    one_step(*session);
    faults.armed = true;
    const ReplanReport report = session->replan(expected_costs(run_), {.policy = Policy::kOffloadNone});
    faults.armed = false;
    SCOPED_TRACE(faults.failed);
    EXPECT_EQ(report.outcome == Outcome::kRefused, !faults.failed.empty()) << report.reason;
    EXPECT_EQ(report.reason.empty(), faults.failed.empty());
    refused += report.outcome == Outcome::kRefused ? 1 : 0;
    const std::uint64_t commits = session->device().counters().commits;
    while (session->steps() < 6) {
      one_step(*session);
    }
    EXPECT_EQ(session->device().counters().commits, commits);
    EXPECT_EQ(session->device().counters().committed_bytes, session->run().prediction.peak_bytes);
    EXPECT_EQ(session->weights_sha256(), usual);
    session.reset();
    EXPECT_EQ(faults.leaked_device_bytes, 0U);
    EXPECT_EQ(faults.leaked_pinned_bytes, 0U);
    if (faults.failed.empty()) {
      break;
    }
  }
  EXPECT_GE(refused, 2U);
}

}  // namespace
}  // namespace vdnn::replanning_test
