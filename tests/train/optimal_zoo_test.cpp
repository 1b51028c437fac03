// `optimal` on the networks of the zoo. At every share of the baseline's peak, `optimal` is never slower than
// another policy that fits, and it fits if any policy does. No step is shorter than the lower bound, and more
// memory never makes a step slower. The compared times are predictions by the real executor on `sim`.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <iostream>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "src/plan/overwrite.h"
#include "src/plan/placement.h"
#include "src/plan/waits.h"
#include "tests/extent.h"
#include "vdnn/error.h"
#include "vdnn/planned_run.h"
#include "vdnn/size.h"
#include "vdnn/zoo.h"

namespace vdnn {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr std::uint64_t kAmple = std::uint64_t{1} << 46U;
constexpr std::array kPercents{100, 80, 60, 40, 30, 20, 15, 10};

using Case = std::tuple<std::string, std::string>;  // model, device

// The long run covers the other cases.
const std::vector<Case> kUsual{{"alexnet", "sim:titan-x"},
                               {"vgg19", "sim:titan-x"},
                               {"googlenet", "sim:titan-x"},
                               {"resnet20", "sim:titan-x"}};
// The Titan X has the algorithms of the `classic` model; these GPUs have cuDNN's engines.
const std::vector<Case> kUsualWithEngines{{"alexnet", "sim:h200"}, {"resnet18", "sim:a100"}};

bool is_among(const std::vector<Case>& cases, const Case& one) {
  return std::ranges::find(cases, one) != cases.end();
}

// 128, or the smaller batch of the publication.
std::int64_t batch(const std::string& model) {
  if (model == "unet") {
    return 8;
  }
  return model.starts_with("vgg") && model.size() == 6 ? 32 : 128;
}

RunOptions options_of(const Case& one, Policy policy, std::uint64_t budget) {
  const auto& [model, device] = one;
  return {.model = {.model = model, .batch = batch(model)},
          .device = device,
          .memory_bytes = budget,
          .host_memory_bytes = kAmple,
          .policy = policy,
          .algorithms = AlgorithmPreference::kPerformance};
}

class OptimalZoo : public ::testing::TestWithParam<Case> {
 protected:
  virtual bool is_usual(const Case& one) const { return is_among(kUsual, one); }
  void SetUp() override {
    if (!is_usual(GetParam()) && testing::extent({.usual = 0, .in_long_run = 1}) == 0) {
      GTEST_SKIP() << "covered by the long run";
    }
  }

  static RunOptions options(Policy policy, std::uint64_t budget) {
    return options_of(GetParam(), policy, budget);
  }
};

struct Rival {
  std::string name;
  std::uint64_t peak_bytes = 0;
  double step_seconds = 0;
};

std::vector<Rival> rivals(const PlannedRun& run) {
  std::vector<Rival> all;
  for (const Policy policy :
       {Policy::kBaseline, Policy::kOffloadNone, Policy::kOffloadConv, Policy::kOffloadAll}) {
    for (const AlgorithmPreference preference :
         {AlgorithmPreference::kPerformance, AlgorithmPreference::kMemory}) {
      const Prediction prediction = predict_policy(run, {.policy = policy, .preference = preference});
      all.push_back({.name = to_string(policy) + ", " + to_string(preference),
                     .peak_bytes = prediction.peak_bytes,
                     .step_seconds = prediction.step_seconds});
    }
  }
  return all;
}

// The smallest budget of `optimal` does not depend on the run's budget.
TEST_P(OptimalZoo, IsNeverSlowerThanAnyOtherPolicyThatFitsAndFitsWhereverAnyFits) {
  const PlannedRun baseline = plan_run(options(Policy::kBaseline, kAmple));
  const std::vector<Rival> statics = rivals(baseline);
  const std::uint64_t smallest = plan_run(options(Policy::kOptimal, kAmple)).smallest_budget_bytes();
  for (const int percent : kPercents) {
    const std::uint64_t budget = baseline.prediction.peak_bytes * static_cast<std::uint64_t>(percent) / 100;
    SCOPED_TRACE(std::to_string(percent) + " % of the baseline's peak, " + format_size(budget));
    const PlannedRun optimal = plan_run(options(Policy::kOptimal, budget));
    const double seconds = optimal.fits() ? optimal.prediction.step_seconds : kNever;
    EXPECT_EQ(optimal.smallest_budget_bytes(), smallest);
    EXPECT_EQ(optimal.fits(), budget >= smallest);
    if (optimal.fits()) {
      EXPECT_LE(lower_bound_step_seconds(optimal), seconds * (1 + 1e-9));
    }
    for (const Rival& rival : statics) {
      if (rival.peak_bytes <= budget) {
        EXPECT_LE(seconds, rival.step_seconds * (1 + 1e-9)) << rival.name;
      }
    }
    const PlannedRun dyn = plan_run(options(Policy::kDynamic, budget));
    if (dyn.fits()) {
      EXPECT_LE(seconds, dyn.prediction.step_seconds * (1 + 1e-9)) << "dyn";
    }
  }
}

TEST_P(OptimalZoo, MoreMemoryNeverMakesItSlower) {
  const std::uint64_t peak = plan_run(options(Policy::kBaseline, kAmple)).prediction.peak_bytes;
  const std::uint64_t budgets = testing::extent({.usual = 20, .under_sanitizers = 5, .in_long_run = 50});
  double before = kNever;
  for (std::uint64_t each = 1; each <= budgets; ++each) {
    const PlannedRun run = plan_run(options(Policy::kOptimal, peak * each / budgets));
    if (run.fits()) {
      EXPECT_LE(run.prediction.step_seconds, before * (1 + 1e-12)) << each << " of " << budgets;
      before = run.prediction.step_seconds;
    } else {
      EXPECT_EQ(before, kNever) << each << " of " << budgets
                                << " does not fit, although a smaller budget did";
    }
  }
  EXPECT_LT(before, kNever) << "the whole peak of the baseline must suffice";
}

// The forecast step of the run's plan if its buffers are placed within `goal` bytes, as far as possible.
// Returns nothing if no closer addresses are found.
std::optional<double> seconds_with_closer_addresses(const PlannedRun& run, std::uint64_t goal) {
  Schedule closer = run.schedule;
  place_buffers(closer, run.target.profile.alignment_bytes, goal);
  if (closer.arena_bytes >= run.schedule.arena_bytes) {
    return std::nullopt;
  }
  derive_waits(*run.tape, closer);
  return make_forecaster(prediction_options(run))->forecast(*run.tape, closer).step_seconds;
}

// Covers a budget in which everything stays, and one in which about half of the possible values leave. With
// other addresses the next step's input may be loaded earlier, so some plans reserve more.
TEST_P(OptimalZoo, ReservesTwoPercentMoreThanIsAliveOnlyIfThatMakesTheStepShorter) {
  const PlannedRun ample = plan_run(options(Policy::kOptimal, kAmple));
  const std::uint64_t half = (ample.prediction.peak_bytes + ample.smallest_budget_bytes()) / 2;
  for (const std::uint64_t budget : {kAmple, half}) {
    SCOPED_TRACE(format_size(budget));
    const PlannedRun run = plan_run(options(Policy::kOptimal, budget));
    if (!run.fits() || run.schedule.arena_bytes == 0) {
      continue;
    }
    const std::uint64_t live = most_live_bytes(lifetimes(run.schedule), run.target.profile.alignment_bytes);
    const auto goal = static_cast<std::uint64_t>(1.02 * static_cast<double>(live));
    if (run.schedule.arena_bytes > goal) {
      EXPECT_FALSE(is_usual(GetParam())) << run.schedule.arena_bytes << " bytes, alive " << live;
      EXPECT_GT(seconds_with_closer_addresses(run, goal).value_or(kNever), run.prediction.step_seconds);
    }
  }
}

// --- a workspace limit only removes choices ----------------------------------------------------------------
class LimitedWorkspace : public OptimalZoo {
 protected:
  bool is_usual(const Case& one) const override {
    return OptimalZoo::is_usual(one) || is_among(kUsualWithEngines, one);
  }
  static PlannedRun optimal(std::uint64_t budget, std::optional<std::uint64_t> limit = {}) {
    RunOptions run = options(Policy::kOptimal, budget);
    run.workspace_limit = limit;
    return plan_run(run);
  }

  // Returns limits. With each comes the least allowed ratio of the step time under that limit to the step
  // time without a limit. The limits are powers of two, as users choose them, and one other number. The
  // search is not exact, so a plan under a limit may be slightly faster.
  static std::vector<std::pair<std::uint64_t, double>> limits(const Tape& tape) {
    std::uint64_t most = 0;
    for (const Op& op : tape.ops()) {
      for (const Algorithm& algorithm : op.algorithms) {
        most = std::max(most, algorithm.workspace_bytes);
      }
    }
    std::vector<std::pair<std::uint64_t, double>> result;
    for (std::uint64_t halvings = 0; halvings < kLimits; ++halvings) {
      result.emplace_back(std::bit_floor(most) >> halvings, 0.995);
    }
    result.emplace_back(most / 3, 0.99);
    return result;
  }

  // The smallest limit that each op can obey.
  static std::uint64_t least_limit(const Tape& tape) {
    std::uint64_t least = 0;
    for (const Op& op : tape.ops()) {
      const Algorithm& smallest = std::ranges::min(op.algorithms, {}, &Algorithm::workspace_bytes);
      least = std::max(least, smallest.workspace_bytes);
    }
    return least;
  }

  inline static const std::uint64_t kLimits = testing::extent({.usual = 4, .in_long_run = 10});
};

// Regression: `optimal` was up to 23 % slower than under the best of six limits. The workspace of a fast
// algorithm left no memory for copies, and addresses were hard to find.
TEST_P(LimitedWorkspace, IsNeverFasterNorFitsInLess) {
  const std::uint64_t most = plan_run(options(Policy::kOffloadNone, kAmple)).prediction.peak_bytes;
  const PlannedRun ample = optimal(kAmple);
  const std::uint64_t smallest = ample.smallest_budget_bytes();
  const std::uint64_t lowest = least_limit(*ample.tape);
  if (lowest > 0) {
    EXPECT_THROW(optimal(kAmple, lowest / 2), InvalidArgument);
  }
  double worst = 1;
  for (const double share : {0.0, 0.02, 0.1, 0.3, 0.6}) {
    const std::uint64_t budget =
        smallest + static_cast<std::uint64_t>(share * static_cast<double>(most - std::min(most, smallest)));
    const PlannedRun free = optimal(budget);
    ASSERT_TRUE(free.fits());
    for (const auto& [limit, least] : limits(*free.tape)) {
      SCOPED_TRACE("share " + std::to_string(share) + ", limit " + format_size(limit));
      if (limit < lowest) {
        continue;
      }
      const PlannedRun limited = optimal(budget, limit);
      EXPECT_GE(limited.smallest_budget_bytes(), smallest);
      if (limited.fits()) {
        const double ratio = limited.prediction.step_seconds / free.prediction.step_seconds;
        EXPECT_GE(ratio, least);
        worst = std::min(worst, ratio);
      }
    }
  }
  std::cout << std::get<0>(GetParam()) << " on " << std::get<1>(GetParam()) << ": with the best limit "
            << worst << " of the step without one\n";
}

// --- the lower bound ---------------------------------------------------------------------------------------
struct NearBound {
  Case network;
  double share = 0;  // of the way from the smallest budget to the peak of `none`
  double most = 1;   // the step time divided by its lower bound
};

class StepTime : public ::testing::TestWithParam<NearBound> {};

// Regression: these networks took longer than this (alexnet 1.25, mobilenet 1.21, googlenet 1.09). For
// alexnet and mobilenet, other buffers occupied the place of the next step's images until the end of the
// step. Moreover, mobilenet's fastest plan was found only under a workspace limit. For googlenet, the search
// of sizes ended after two sizes with much slower plans.
TEST_P(StepTime, IsNearItsLowerBound) {
  const auto& [network, share, most] = GetParam();
  const std::uint64_t peak =
      plan_run(options_of(network, Policy::kOffloadNone, kAmple)).prediction.peak_bytes;
  const std::uint64_t smallest =
      plan_run(options_of(network, Policy::kOptimal, kAmple)).smallest_budget_bytes();
  const auto budget =
      smallest + static_cast<std::uint64_t>(share * static_cast<double>(peak - std::min(peak, smallest)));
  const PlannedRun run = plan_run(options_of(network, Policy::kOptimal, budget));
  ASSERT_TRUE(run.fits());
  EXPECT_LE(run.prediction.step_seconds, most * lower_bound_step_seconds(run));
}

// --- the smallest budget -----------------------------------------------------------------------------------
// The bytes on the device while the op runs, with its least workspace and without persistent values.
std::uint64_t bytes_at(const Tape& tape, OpId id, std::uint64_t alignment) {
  const Op& op = tape.op(id);
  std::uint64_t bytes =
      std::ranges::min_element(op.algorithms, {}, &Algorithm::workspace_bytes)->workspace_bytes;
  for (ValueId value = 0; value < tape.values().size(); ++value) {
    if (tape.value(value).persistent()) {
      continue;
    }
    const bool read = std::ranges::find(op.reads, value) != op.reads.end();
    const auto write = std::ranges::find(op.writes, value);
    const bool fresh = write != op.writes.end() &&
                       !overwritten_read(tape, id, static_cast<std::uint32_t>(write - op.writes.begin()));
    const OpId producer = tape.producer(value);
    const bool live_gradient = producer != kNone && tape.op(producer).phase != Phase::kForward &&
                               producer < id && tape.last_use(value) > id;
    bytes += read || fresh || live_gradient ? round_up(tape.value(value).bytes, alignment) : 0;
  }
  return bytes;
}

// The bytes of persistent values plus the largest sum, over all ops, of operands, least workspace, and the
// gradients that the backward pass has made and still needs.
std::uint64_t floor_bytes(const PlannedRun& run) {
  const Tape& tape = *run.tape;
  const std::uint64_t alignment = run.target.profile.alignment_bytes;
  std::uint64_t persistent = 0;
  for (const Value& value : tape.values()) {
    persistent += value.persistent() ? round_up(value.bytes, alignment) : 0;
  }
  std::uint64_t most = 0;
  for (OpId op = 0; op < tape.ops().size(); ++op) {
    most = std::max(most, bytes_at(tape, op, alignment));
  }
  return round_up(persistent + most, run.target.profile.granule_bytes);
}

class LeastMemory : public OptimalZoo {
 protected:
  bool is_usual(const Case& one) const override {
    return OptimalZoo::is_usual(one) || one == Case("densenet121", "sim:a100");
  }
};

// Regression: vgg16 needed 1.13 times that floor, resnet50 1.17, densenet121 1.30, resnet20 1.29 and
// mobilenet 1.11. A value was fetched only once and stayed on the device until its last reader. Later
// densenet121 needed 1.002 times the floor on a100 and 1.02 on h200: addresses were searched for only one
// plan.
TEST_P(LeastMemory, IsNearWhatTheLargestOpNeeds) {
  const PlannedRun run = plan_run(options(Policy::kOptimal, kAmple));
  const double ratio =
      static_cast<double>(run.smallest_budget_bytes()) / static_cast<double>(floor_bytes(run));
  std::cout << std::get<0>(GetParam()) << " on " << std::get<1>(GetParam()) << ": smallest budget " << ratio
            << " of the largest op's need\n";
  EXPECT_GE(ratio, 1);
  EXPECT_LE(ratio, 1.001);
}

struct Batch {
  Case network;
  std::int64_t batch = 0;
};

class SmallestBudget : public ::testing::TestWithParam<Batch> {
 protected:
  static PlannedRun optimal(std::uint64_t budget) {
    RunOptions options = options_of(GetParam().network, Policy::kOptimal, budget);
    options.model.batch = GetParam().batch;
    return plan_run(options);
  }
};

// Regression: in ample memory, a smallest budget of up to 1.014 times the floor was reported, although plans
// in smaller budgets fitted. No addresses had been found for plans by rules.
TEST_P(SmallestBudget, DoesNotDependOnTheRunsBudget) {
  const PlannedRun ample = optimal(kAmple);
  const std::uint64_t smallest = ample.smallest_budget_bytes();
  EXPECT_EQ(smallest, floor_bytes(ample));
  const std::uint64_t granule = ample.target.profile.granule_bytes;
  const PlannedRun refused = optimal(smallest - granule);
  EXPECT_FALSE(refused.fits());
  EXPECT_EQ(refused.smallest_budget_bytes(), smallest);
  const PlannedRun tight = optimal(smallest + granule);
  EXPECT_TRUE(tight.fits());
  EXPECT_EQ(tight.smallest_budget_bytes(), smallest);
}

std::string name_of_case(const Case& one) {
  std::string name = std::get<0>(one) + "_" + std::get<1>(one).substr(4);
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

std::string name_of(const ::testing::TestParamInfo<Case>& test) {
  return name_of_case(test.param);
}

INSTANTIATE_TEST_SUITE_P(Zoo, OptimalZoo,
                         ::testing::Combine(::testing::ValuesIn(model_names()),
                                            ::testing::Values("sim:titan-x", "sim:v100-16", "sim:h200")),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Zoo, LimitedWorkspace,
                         ::testing::Combine(::testing::ValuesIn(model_names()),
                                            ::testing::Values("sim:titan-x", "sim:a100", "sim:rtx4090",
                                                              "sim:h200", "sim:b200")),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Zoo, StepTime,
                         ::testing::Values(NearBound{{"alexnet", "sim:h200"}, 0.6, 1.12},
                                           NearBound{{"mobilenet", "sim:a100"}, 0.1, 1.16},
                                           NearBound{{"googlenet", "sim:b200"}, 0.6, 1.03}),
                         [](const auto& test) { return name_of_case(test.param.network); });
INSTANTIATE_TEST_SUITE_P(Zoo, SmallestBudget,
                         ::testing::Values(Batch{{"densenet121", "sim:h200"}, 64},
                                           Batch{{"densenet121", "sim:b200"}, 32}),
                         [](const auto& test) {
                           return name_of_case(test.param.network) + "_" + std::to_string(test.param.batch);
                         });
INSTANTIATE_TEST_SUITE_P(Zoo, LeastMemory,
                         ::testing::Combine(::testing::Values("vgg16", "mobilenet", "resnet50", "densenet121",
                                                              "resnet20", "resnet152"),
                                            ::testing::Values("sim:titan-x", "sim:a100", "sim:rtx4090",
                                                              "sim:h200", "sim:b200")),
                         name_of);

}  // namespace
}  // namespace vdnn
