// The stages of `dyn`, with forecasts made up by the tests.

#include "src/plan/dynamic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/plan/tapes.h"
#include "vdnn/plan_search.h"

namespace vdnn::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// --- the greedy choice -------------------------------------------------------------------------------------

// images 64, targets 8, w 16 (persistent), y 64, metrics 8, p 64, dy 64 in p's place, dw 16.
TEST(GreedyAlgorithms, SeeWhatLiesBesideTheWorkspace) {
  const TapePtr tape = tiny_tape();
  EXPECT_THAT(bytes_beside_workspace(*tape, schedule_of(*tape, Policy::kOffloadNone)),
              ElementsAre(64 + 8 + 16 + 64,           // conv.forward
                          64 + 8 + 16 + 64 + 8 + 64,  // loss.forward
                          64 + 16 + 64 + 64,          // loss.backward: p, y, images, w
                          64 + 16 + 64 + 16,          // conv.backward: dy, images, w, dw
                          16 + 16));                  // w.update
}

// `fast` needs 128 units beside the 152 in use.
TEST(GreedyAlgorithms, StepDownWhereTheWorkspaceOverflows) {
  const TapePtr tape = tiny_tape();
  const std::vector<std::uint64_t> beside =
      bytes_beside_workspace(*tape, schedule_of(*tape, Policy::kOffloadNone));
  EXPECT_THAT(greedy_algorithms(*tape, {}, beside, 152 + 128), ElementsAre(0, 0, 0, 0, 0));
  EXPECT_THAT(greedy_algorithms(*tape, {}, beside, 152 + 127), ElementsAre(1, 0, 0, 0, 0));
  EXPECT_THAT(greedy_algorithms(*tape, {.workspace_limit = 127}, beside, 1000), ElementsAre(1, 0, 0, 0, 0));
}

std::uint32_t chosen_of(std::vector<Algorithm> algorithms, std::uint64_t room) {
  TapeDraft draft;
  const ValueId x = draft.value("x", ValueKind::kInput, 8);
  const ValueId metrics = draft.value("metrics", ValueKind::kMetrics, 8);
  draft.op("conv1.forward", draft.layer("conv1"), Phase::kForward, {x}, {metrics}, {}, std::move(algorithms));
  return greedy_algorithms(*draft.finish(), {}, {100}, 100 + room).at(0);
}

// A slower algorithm with more workspace is not a step down. The last resort is the algorithm with the least
// workspace, wherever the catalog lists it.
TEST(GreedyAlgorithms, StepDownTheCatalogsOrder) {
  const std::vector<Algorithm> algorithms{{"first", 400}, {"larger", 500}, {"medium", 40}, {"least", 4}};
  EXPECT_EQ(chosen_of(algorithms, 500), 0);
  EXPECT_EQ(chosen_of(algorithms, 399), 2);
  EXPECT_EQ(chosen_of(algorithms, 39), 3);
  EXPECT_EQ(chosen_of(algorithms, 3), 3);
  EXPECT_EQ(chosen_of({{"first", 40}, {"least", 4}, {"last", 5}}, 0), 1);
}

// --- the stages --------------------------------------------------------------------------------------------

// The peak in memory without fragmentation, computed independently.
std::uint64_t live_peak(const Schedule& schedule) {
  std::uint64_t live = 0;
  std::uint64_t peak = 0;
  const auto bytes = [](const Buffer& buffer) { return buffer.space == Space::kDevice ? buffer.bytes : 0; };
  for (const Buffer& buffer : schedule.buffers) {
    live += buffer.persistent ? bytes(buffer) : 0;
  }
  for (const Instruction& instruction : schedule.instructions) {
    if (instruction.kind == InstructionKind::kAllocate) {
      live += bytes(schedule.buffers[instruction.buffer]);
    } else if (instruction.kind == InstructionKind::kRelease) {
      live -= bytes(schedule.buffers[instruction.buffer]);
    }
    peak = std::max(peak, live);
  }
  return peak;
}

class MadeUpForecaster final : public Forecaster {
 public:
  using Rule = std::function<std::uint64_t(const Tape&, const Schedule&)>;
  // `rule` returns the peak.
  explicit MadeUpForecaster(Rule rule) : rule_(std::move(rule)) {}

  Forecast forecast(const Tape& tape, const Schedule& schedule) const override {
    ++asked;
    return {.peak_bytes = rule_(tape, schedule), .host_bytes = offload_bytes(tape, schedule)};
  }

  mutable int asked = 0;

 private:
  Rule rule_;
};

constexpr std::uint64_t kAmple = std::uint64_t{1} << 40;

class Dynamic : public ::testing::Test {
 protected:
  // The offloaded values and the algorithms of the convolutions: "conv, fast", "all, lean" or "all, mixed".
  std::string kind_of(const std::vector<std::uint32_t>& algorithms, std::uint64_t offloaded) const {
    std::string name = "something";
    for (const Policy policy : {Policy::kOffloadNone, Policy::kOffloadConv, Policy::kOffloadAll}) {
      if (offload_bytes(*tape_, schedule_of(*tape_, policy)) == offloaded) {
        name = to_string(policy);
      }
    }
    const auto are = [&](AlgorithmPreference preference) {
      return plan_of(*tape_, Policy::kOffloadNone, preference).algorithms == algorithms;
    };
    return name + (are(AlgorithmPreference::kPerformance) ? ", fast"
                   : are(AlgorithmPreference::kMemory)    ? ", lean"
                                                          : ", mixed");
  }
  std::string kind_of(const Plan& plan) const {
    EXPECT_EQ(plan.options.policy, Policy::kDynamic);
    return kind_of(plan.algorithms, offload_bytes(*tape_, make_schedule(*tape_, plan)));
  }
  // Only the named schedules fit.
  MadeUpForecaster only(std::vector<std::string> kinds) const {
    return MadeUpForecaster([this, kinds = std::move(kinds)](const Tape& tape, const Schedule& schedule) {
      const std::string kind = kind_of(schedule.algorithms, offload_bytes(tape, schedule));
      return std::ranges::find(kinds, kind) == kinds.end() ? 2 * kBudget : kBudget;
    });
  }
  Plan plan(const Forecaster& forecaster, const Budgets& budgets, const PlanOptions& options = {}) const {
    return plan_dynamic(*tape_, options, budgets, forecaster);
  }

  static constexpr std::uint64_t kBudget = 1 << 20;
  static constexpr Budgets kBudgets{.device_bytes = kBudget, .host_bytes = kAmple};
  // With this many samples the convolutions, not the classifier's weights, determine the peak.
  const TapePtr tape_ =
      lower_to_tape(make_model({.model = "fashion-vgg", .batch = 64}), fakes::FakeCatalog(), kMomentum);
};

TEST_F(Dynamic, WhereTheLeastDoesNotFitNothingElseIsAsked) {
  const MadeUpForecaster none = only({"none, fast", "conv, fast"});
  EXPECT_EQ(kind_of(plan(none, kBudgets)), "all, lean");
  EXPECT_EQ(none.asked, 1);
}

TEST_F(Dynamic, TheFirstOfNoneConvAndAllThatFitsIsTaken) {
  const MadeUpForecaster everything = only({"all, lean", "none, fast", "conv, fast", "all, fast"});
  EXPECT_EQ(kind_of(plan(everything, kBudgets)), "none, fast");
  EXPECT_EQ(everything.asked, 2);
  EXPECT_EQ(kind_of(plan(only({"all, lean", "conv, fast", "all, fast"}), kBudgets)), "conv, fast");
  EXPECT_EQ(kind_of(plan(only({"all, lean", "all, fast"}), kBudgets)), "all, fast");
}

TEST_F(Dynamic, IfOnlyTheLeastFitsItIsTaken) {
  const MadeUpForecaster least = only({"all, lean"});
  EXPECT_EQ(kind_of(plan(least, kBudgets)), "all, lean");
  EXPECT_GT(least.asked, 4) << "the greedy stage ran";
}

// Returns the budget halfway between the policy's peaks with lean and with fast algorithms.
std::uint64_t between(const Tape& tape, Policy policy) {
  return (live_peak(schedule_of(tape, policy, AlgorithmPreference::kMemory)) +
          live_peak(schedule_of(tape, policy, AlgorithmPreference::kPerformance))) /
         2;
}

// In the first case only `conv` fits, in the second only `all`, and in both only after some ops step down to
// a smaller algorithm.
TEST_F(Dynamic, StepsDownLayerByLayerUnderConvThenUnderAll) {
  const MadeUpForecaster ideal([](const Tape&, const Schedule& schedule) { return live_peak(schedule); });
  for (const Policy policy : {Policy::kOffloadConv, Policy::kOffloadAll}) {
    SCOPED_TRACE(to_string(policy));
    const std::uint64_t budget = between(*tape_, policy);
    const MadeUpForecaster under([&](const Tape& tape, const Schedule& schedule) {
      const bool wanted = offload_bytes(tape, schedule) == offload_bytes(tape, schedule_of(tape, policy));
      const bool least = kind_of(schedule.algorithms, offload_bytes(tape, schedule)) == "all, lean";
      return wanted || least ? live_peak(schedule) : kAmple;
    });
    const Budgets budgets{.device_bytes = budget, .host_bytes = kAmple};
    ASSERT_GT(live_peak(schedule_of(*tape_, policy)), budget);
    const Plan found = plan(under, budgets);
    EXPECT_EQ(kind_of(found), to_string(policy) + ", mixed");
    EXPECT_LE(live_peak(make_schedule(*tape_, found)), budget);
    // No op steps down without need.
    for (OpId id = 0; id < tape_->ops().size(); ++id) {
      if (found.algorithms[id] > 0) {
        Plan faster = found;
        faster.algorithms[id] = 0;
        EXPECT_GT(live_peak(make_schedule(*tape_, faster)), budget) << tape_->op(id).name;
      }
    }
  }
}

// Fragmentation makes the peak a quarter larger than the walk assumes, so the walk runs again with less
// memory.
TEST_F(Dynamic, TightensTheWalkWhereMemoryFragments) {
  const auto with_gaps = [](const Schedule& schedule) {
    return live_peak(schedule) + live_peak(schedule) / 4;
  };
  const MadeUpForecaster forecaster([&](const Tape& tape, const Schedule& schedule) {
    const bool greedy_is_wanted = offload_bytes(tape, schedule) > 0;
    return greedy_is_wanted ? with_gaps(schedule) : kAmple;
  });
  const std::uint64_t lean =
      with_gaps(schedule_of(*tape_, Policy::kOffloadConv, AlgorithmPreference::kMemory));
  const std::uint64_t fast = with_gaps(schedule_of(*tape_, Policy::kOffloadConv));
  const Budgets budgets{.device_bytes = (lean + fast) / 2, .host_bytes = kAmple};
  const Plan found = plan(forecaster, budgets);
  EXPECT_EQ(kind_of(found), "conv, mixed");
  EXPECT_LE(with_gaps(make_schedule(*tape_, found)), budgets.device_bytes);
  EXPECT_GT(forecaster.asked, 5) << "the first walk overflowed";
}

// Each of two ops has an algorithm without workspace that takes five times as long. Regression: both ops were
// left with that slow algorithm, since the walk subtracts the bytes lost to fragmentation from the memory for
// every op's workspace.
TEST(DynamicFallbacks, AreTakenOnlyWhereNothingFasterFits) {
  const Cost cost{.flops = 100, .bytes = 100};
  const Cost slow{.flops = 500, .bytes = 500};
  const std::vector<Algorithm> algorithms{{"fast", 200, cost}, {"medium", 100, cost}, {"slow", 0, slow}};
  TapeDraft draft;
  const ValueId x = draft.value("x", ValueKind::kInput, 8);
  const ValueId y = draft.value("y", ValueKind::kFeatureMap, 8);
  const ValueId metrics = draft.value("metrics", ValueKind::kMetrics, 8);
  draft.op("conv1.forward", draft.layer("conv1"), Phase::kForward, {x}, {y}, {}, algorithms);
  draft.op("conv2.forward", draft.layer("conv2"), Phase::kForward, {y}, {metrics}, {}, algorithms);
  const TapePtr tape = draft.finish();
  // Only workspace of the first op causes fragmentation.
  const MadeUpForecaster forecaster([](const Tape&, const Schedule& schedule) -> std::uint64_t {
    constexpr std::array<std::uint64_t, 3> kFirst{900, 800, 100};
    constexpr std::array<std::uint64_t, 3> kSecond{600, 400, 100};
    return std::max(kFirst.at(schedule.algorithms[0]), kSecond.at(schedule.algorithms[1]));
  });
  const auto chosen = [&](std::uint64_t bytes, const PlanOptions& options = {}) {
    return plan_dynamic(*tape, options, {.device_bytes = bytes, .host_bytes = kAmple}, forecaster).algorithms;
  };
  EXPECT_THAT(chosen(500), ElementsAre(2, 1));
  EXPECT_THAT(chosen(700), ElementsAre(2, 0));
  EXPECT_THAT(chosen(700, {.workspace_limit = 100}), ElementsAre(2, 1));
  EXPECT_THAT(chosen(300), ElementsAre(2, 2));
}

TEST_F(Dynamic, PageLockedMemoryIsABudgetToo) {
  const MadeUpForecaster large([](const Tape&, const Schedule& schedule) { return live_peak(schedule); });
  const std::uint64_t all = offload_bytes(*tape_, schedule_of(*tape_, Policy::kOffloadAll));
  EXPECT_EQ(kind_of(plan(large, {.device_bytes = kAmple, .host_bytes = all})), "none, fast");
  const MadeUpForecaster more([&](const Tape& tape, const Schedule& schedule) {
    return offload_bytes(tape, schedule) == all ? kBudget : 2 * kBudget;
  });
  const Plan refused = plan(more, {.device_bytes = kBudget, .host_bytes = all - 1});
  EXPECT_EQ(kind_of(refused), "all, lean") << "the plan is made although it does not fit";
  EXPECT_EQ(more.asked, 1);
}

TEST_F(Dynamic, RecordedAlgorithmsAreTakenInEveryStage) {
  PlanOptions options;
  const Plan recorded = plan_of(*tape_, Policy::kOffloadNone, AlgorithmPreference::kMemory);
  for (OpId id = 0; id < tape_->ops().size(); ++id) {
    options.recorded[tape_->op(id).name] = tape_->op(id).algorithms[recorded.algorithms[id]].name;
  }
  EXPECT_EQ(kind_of(plan(only({"all, lean", "none, lean", "conv, lean"}), kBudgets, options)), "none, lean");
  EXPECT_EQ(kind_of(plan(only({"all, lean", "conv, lean"}), kBudgets, options)), "conv, lean");
  options.recorded["conv9.forward"] = "fast";
  EXPECT_THROW(plan(only({"all, lean"}), kBudgets, options), InvalidArgument);
}

TEST_F(Dynamic, TheWorkspaceLimitHoldsInEveryStage) {
  const std::uint64_t limit =
      workspace_bytes(*tape_, plan_of(*tape_, Policy::kOffloadNone, AlgorithmPreference::kPerformance)) - 1;
  const MadeUpForecaster ideal([](const Tape&, const Schedule& schedule) { return live_peak(schedule); });
  const auto largest = [&](std::uint64_t budget) {
    const Plan found =
        plan(ideal, {.device_bytes = budget, .host_bytes = kAmple}, {.workspace_limit = limit});
    return workspace_bytes(*tape_, found);
  };
  EXPECT_LE(largest(kAmple), limit);
  EXPECT_LE(largest(between(*tape_, Policy::kOffloadAll)), limit);
}

// Without a forecaster, the plan of `dyn` would be that of `none`, so the call is refused.
TEST_F(Dynamic, IsNoStaticPolicy) {
  try {
    plan_of(*tape_, Policy::kDynamic);
    FAIL() << "a plan was made without a forecast";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("dyn"));
  }
}

}  // namespace
}  // namespace vdnn::testing
