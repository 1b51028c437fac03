#include "src/report/explanation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "src/report/explanation_output.h"
#include "tests/extent.h"
#include "tests/report/json_schema.h"
#include "tests/train/lives_run.h"
#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::ThrowsMessage;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;

RunOptions resnet20(Policy policy, std::optional<std::uint64_t> memory_bytes) {
  return {.model = {.model = "resnet20", .batch = 128},
          .device = "sim:titan-x",
          .memory_bytes = memory_bytes,
          .policy = policy,
          .trace_prediction = true};
}

TEST(Explanation, SaysWhatPlanSaysOfOtherBudgets) {
  const PlannedRun run = plan_run(resnet20(Policy::kOptimal, 64 * kMiB));
  ASSERT_TRUE(run.fits());
  const Explanation explanation = explain(run);
  EXPECT_TRUE(explanation.depends_on_budget);
  ASSERT_FALSE(explanation.more.empty());
  double step = run.prediction.step_seconds;
  std::uint64_t budget = run.target.budget_bytes;
  for (const OtherBudget& other : explanation.more) {
    const PlannedRun planned = plan_run(resnet20(Policy::kOptimal, other.budget_bytes));
    EXPECT_EQ(other.step_seconds, planned.prediction.step_seconds);
    EXPECT_EQ(other.peak_bytes, planned.prediction.peak_bytes);
    EXPECT_TRUE(other.fits);
    EXPECT_GT(other.budget_bytes, budget);
    EXPECT_LE(other.step_seconds, step);
    step = other.step_seconds;
    budget = other.budget_bytes;
  }
  EXPECT_LE(explanation.unlimited_step_seconds, step);
  EXPECT_EQ(explanation.oracle_step_seconds, oracle_step_seconds(run));
  std::set<ValueId> offloaded;
  for (const Transfer& transfer : run.plan.transfers) {
    offloaded.insert(transfer.value);
  }
  EXPECT_EQ(explanation.decisions.offloaded.count, offloaded.size());
  std::set<ValueId> recomputed;
  for (const Recomputation& recomputation : run.plan.recomputations) {
    if (!offloaded.contains(recomputation.value)) {
      recomputed.insert(recomputation.value);
    }
  }
  // The plan does not list values that are recomputed only because the recomputation of another value needs
  // them.
  EXPECT_GE(explanation.decisions.recomputed.count, recomputed.size());
}

// The explanation does not try decisions that cannot gain anything.
TEST(Explanation, StopsWhereNothingIsGained) {
  EXPECT_THAT(explain(plan_run(resnet20(Policy::kOptimal, 4096 * kMiB))).more, IsEmpty());
  const Explanation fixed = explain(plan_run(resnet20(Policy::kOffloadAll, 64 * kMiB)));
  EXPECT_FALSE(fixed.depends_on_budget);
  EXPECT_THAT(fixed.more, IsEmpty());
}

TEST(Explanation, TheSmallestBudgetHasAnOpAndAFloor) {
  for (const Policy policy : {Policy::kOptimal, Policy::kDynamic, Policy::kOffloadAll}) {
    const PlannedRun run = plan_run(resnet20(policy, 4096 * kMiB));
    const SmallestBudget smallest = explain(run).smallest;
    EXPECT_EQ(smallest.budget_bytes, run.smallest_budget_bytes());
    EXPECT_EQ(smallest.peak_bytes, run.smallest_peak_bytes);
    EXPECT_LE(smallest.fullest.bytes, smallest.peak_bytes);
    EXPECT_GE(smallest.fullest.bytes, smallest.there.bytes());
    EXPECT_GE(smallest.most.bytes(), smallest.there.bytes());
    EXPECT_GE(smallest.peak_bytes, smallest.most.bytes());
    EXPECT_EQ(smallest.is_floor,
              smallest.peak_bytes == round_up(smallest.most.bytes(), run.target.profile.granule_bytes));
    EXPECT_EQ(smallest.above_floor_bytes > 0, !smallest.is_floor);
    EXPECT_GE(smallest.ops_near_peak, 1U);
    std::ostringstream text;
    print(text, run, explain(run));
    EXPECT_EQ(text.str().find("can need less: " + run.tape->op(smallest.most.op).name) != std::string::npos,
              smallest.is_floor);
    // The error for a too small budget names the op of the fullest moment.
    RunOptions least = resnet20(policy, run.smallest_budget_bytes());
    const PlannedRun planned = plan_run(least);
    EXPECT_TRUE(planned.fits());
    EXPECT_EQ(smallest.there.op, fullest_op(*planned.tape, planned.schedule));
  }
}

TEST(Explanation, AValueHasItsFateItsTimesAndWhatWouldBe) {
  const PlannedRun run = plan_run(resnet20(Policy::kOffloadAll, std::nullopt));
  const Transfer& transfer = run.plan.transfers.at(3);
  const ExplainedValue value = explain_value(run, transfer.value);
  EXPECT_EQ(value.decision, ValueDecision::kOffloaded);
  ASSERT_EQ(value.offloads.size(), 1U);
  ASSERT_EQ(value.prefetches.size(), 1U);
  const double bytes = static_cast<double>(run.tape->value(transfer.value).bytes);
  EXPECT_GE(value.offloads[0].seconds, bytes / run.target.profile.link_bytes_per_second.device_to_host);
  EXPECT_LT(value.offloads[0].begin_seconds, value.prefetches[0].begin_seconds);
  EXPECT_EQ(value.made_by, run.tape->producer(transfer.value));
  ASSERT_EQ(value.otherwise.size(), 3U);
  EXPECT_EQ(value.otherwise[1].step_seconds, run.prediction.step_seconds);
  EXPECT_EQ(value.otherwise[1].peak_bytes, run.prediction.peak_bytes);
  EXPECT_LE(value.otherwise[0].host_bytes, value.otherwise[1].host_bytes);
  EXPECT_THAT(value.recomputed_for, IsEmpty());

  const ExplainedValue parameter = explain_value(run, run.tape->parameters()[0].value);
  EXPECT_EQ(parameter.decision, ValueDecision::kUndecided);
  EXPECT_THAT(parameter.undecided, HasSubstr("stay"));
  EXPECT_THAT(parameter.otherwise, IsEmpty());
}

TEST(Explanation, ARecomputedValueSaysForWhom) {
  const PlannedRun run = plan_run(resnet20(Policy::kOptimal, 64 * kMiB));
  ASSERT_FALSE(run.plan.recomputations.empty());
  const Recomputation& recomputation = run.plan.recomputations.front();
  const ExplainedValue value = explain_value(run, recomputation.value);
  EXPECT_EQ(value.decision, ValueDecision::kRecomputed);
  EXPECT_THAT(value.recomputed_for, Contains(recomputation.with));
  EXPECT_THAT(value.offloads, IsEmpty());
}

// The values are fetched twice from one copy, or made again for several readers.
TEST(Explanation, AValueOfSeveralLivesHasAllOfThem) {
  const PlannedRun run =
      testing::with_several_lives(plan_run(resnet20(Policy::kOffloadNone, std::nullopt)), 0);
  std::size_t fetched_again = 0;
  std::size_t made_again = 0;
  for (ValueId id = 0; id < run.tape->values().size() && (fetched_again == 0 || made_again == 0); ++id) {
    const auto fetches = std::ranges::count(run.plan.transfers, id, &Transfer::value);
    const auto copies = std::ranges::count_if(run.plan.transfers, [&](const Transfer& transfer) {
      return transfer.value == id && transfer.offload_with != kNone;
    });
    std::vector<OpId> made_with;
    for (const Recomputation& recomputation : run.plan.recomputations) {
      if (recomputation.value == id) {
        made_with.push_back(recomputation.with);
      }
    }
    if (fetches == copies && made_with.size() < 2) {
      continue;
    }
    fetched_again += fetches > copies ? 1 : 0;
    made_again += made_with.size() > 1 ? 1 : 0;
    const ExplainedValue value = explain_value(run, id);
    EXPECT_EQ(std::ssize(value.prefetches), fetches);
    EXPECT_EQ(std::ssize(value.offloads), copies);
    EXPECT_THAT(value.recomputed_for, IsSupersetOf(made_with));
    if (value.undecided.empty()) {
      ASSERT_EQ(value.otherwise.size(), 3U);
      EXPECT_THAT(value.otherwise[0].impossible, IsEmpty());
    }
  }
  EXPECT_GT(fetched_again, 0U);
  EXPECT_GT(made_again, 0U);
}

TEST(Explanation, BudgetsWithoutEndDoNotWrap) {
  for (const std::uint64_t memory : {~std::uint64_t{0}, ~std::uint64_t{0} - 5}) {
    for (const OtherBudget& other : explain(plan_run(resnet20(Policy::kDynamic, memory))).more) {
      EXPECT_GT(other.budget_bytes, memory);
    }
  }
}

// A value that is recomputed only on the way to another value counts as recomputed, too, and its explanation
// names the other value.
TEST(Explanation, ValuesMadeAgainForOthersAreRecomputed) {
  const PlannedRun run = plan_run({.model = {.model = "googlenet", .batch = 64},
                                   .device = "sim:titan-x",
                                   .host_memory_bytes = std::uint64_t{1} << 20U,  // too little to offload
                                   .policy = Policy::kOptimal,
                                   .trace_prediction = true});
  const PlannedRun least = plan_again(run, Policy::kOptimal, run.smallest_budget_bytes());
  std::size_t unlisted = 0;
  const std::vector<ValueDecision> decisions = decisions_of(*least.tape, least.schedule);
  for (ValueId value = 0; value < decisions.size(); ++value) {
    const auto listed = std::ranges::count(least.plan.recomputations, value, &Recomputation::value);
    EXPECT_TRUE(listed == 0 || decisions[value] == ValueDecision::kRecomputed ||
                decisions[value] == ValueDecision::kOffloaded);
    if (decisions[value] == ValueDecision::kRecomputed && listed == 0) {
      ++unlisted;
      const ExplainedValue explained = explain_value(least, value);
      EXPECT_EQ(explained.decision, ValueDecision::kRecomputed);
      EXPECT_FALSE(explained.recomputed_for.empty());
    }
  }
  EXPECT_GT(unlisted, 0U);
}

TEST(Explanation, AnOpHasItsAlgorithmAndTheFastest) {
  RunOptions options = resnet20(Policy::kOffloadNone, std::nullopt);
  options.algorithms = AlgorithmPreference::kMemory;
  const PlannedRun run = plan_run(options);
  std::size_t slower = 0;
  for (OpId id = 0; id < run.tape->ops().size(); ++id) {
    const ExplainedOp op = explain_op(run, id);
    EXPECT_GE(op.memory.bytes, op.irreducible.bytes());
    EXPECT_EQ(op.with_fastest.has_value(),
              op.algorithm_seconds[op.algorithm] > op.algorithm_seconds[op.fastest_algorithm]);
    if (op.with_fastest && op.with_fastest->impossible.empty()) {
      ++slower;
      EXPECT_LT(op.with_fastest->step_seconds, run.prediction.step_seconds);
    }
  }
  EXPECT_EQ(slower, explain(run).decisions.slower_algorithms);
  EXPECT_GT(slower, 0U);
}

TEST(Explanation, NamesAreOfValuesLayersAndOps) {
  const PlannedRun run = plan_run(resnet20(Policy::kOffloadNone, std::nullopt));
  const Tape& tape = *run.tape;
  const Op& first = tape.op(0);
  EXPECT_THAT(find_values(tape, tape.value(first.writes[0]).name), ElementsAre(first.writes[0]));
  EXPECT_THAT(find_values(tape, tape.layer_of(first)->name), ::testing::Contains(first.writes[0]));
  EXPECT_EQ(find_op(tape, first.name), 0U);
  const std::string name = tape.value(first.writes[0]).name;
  EXPECT_THAT([&] { find_values(tape, name + "y"); },
              ThrowsMessage<InvalidArgument>(
                  AllOf(HasSubstr("value = " + name + "y"), HasSubstr("similar names: " + name))));
  EXPECT_THAT([&] { find_op(tape, first.name + "s"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("similar names: " + first.name)));
}

// Covers every policy, with budgets that fit and budgets that do not.
TEST(Explanation, EveryLineObeysTheSchema) {
  const auto schema = testing::read_json(std::string(VDNN_DOCS_DIRECTORY) + "/explanation.schema.json");
  const auto check = [&](nlohmann::ordered_json line) {
    line["schema"] = 1;
    EXPECT_THAT(testing::SchemaCheck::errors(schema, line), IsEmpty()) << line.dump(1).substr(0, 1000);
  };
  std::vector<Policy> policies{Policy::kOptimal,  Policy::kOffloadAll,  Policy::kDynamic,
                               Policy::kBaseline, Policy::kOffloadNone, Policy::kOffloadConv};
  policies.resize(
      testing::extent({.usual = policies.size(), .under_sanitizers = 2, .in_long_run = policies.size()}));
  std::vector<std::uint64_t> memories{80 * kMiB, 8 * kMiB, 1024 * kMiB};
  memories.resize(testing::extent({.usual = 3, .under_sanitizers = 1, .in_long_run = 3}));
  for (const Policy policy : policies) {
    for (const std::uint64_t memory : memories) {
      SCOPED_TRACE(to_string(policy) + " " + std::to_string(memory));
      const PlannedRun run = plan_run(resnet20(policy, memory));
      const Explanation explanation = explain(run);
      for (const auto& line : to_json(run, explanation)) {
        check(line);
      }
      std::ostringstream text;
      print(text, run, explanation);
      EXPECT_THAT(text.str(), AllOf(HasSubstr("Most memory is in use at"), HasSubstr("The smallest budget"),
                                    HasSubstr("More memory would give"), HasSubstr("A step of")));
      for (ValueId value = 0; value < run.tape->values().size(); value += 37) {
        check(to_json(run, explain_value(run, value)));
      }
      for (OpId op = 0; op < run.tape->ops().size(); op += 29) {
        check(to_json(run, explain_op(run, op)));
      }
    }
  }
}

}  // namespace
}  // namespace vdnn
