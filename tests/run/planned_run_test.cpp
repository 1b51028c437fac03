#include "vdnn/planned_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/temporary_directory.h"
#include "tests/train/training_runs.h"
#include "vdnn/custom_layer.h"
#include "vdnn/error.h"
#include "vdnn/learned_costs.h"
#include "vdnn/size.h"

namespace vdnn::planned_run_test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::uint64_t kAmple = std::uint64_t{4} << 30;
constexpr std::uint64_t kGranule = 64 << 10;  // of `cpu`

RunOptions options(const std::string& model = "fashion-vgg", std::int64_t batch = 32) {
  return {.model = {.model = model, .input = {}, .classes = 0, .batch = batch},
          .device = "cpu",
          .memory_bytes = kAmple,
          .host_memory_bytes = kAmple,
          .threads = 1,
          .policy = std::nullopt,
          .training = {.optimizer = SgdSpec{.momentum = 0.9F}}};
}
RunOptions options_with(Policy policy) {
  RunOptions result = options();
  result.policy = policy;
  return result;
}
Policy chosen_in(std::uint64_t budget) {
  RunOptions run = options();
  run.memory_bytes = budget;
  return plan_run(run).plan.options.policy;
}

TEST(PlannedRunSharedLink, MakesCopiesSlowerWhereDevicesShareARoot) {
  const auto step_seconds = [](const std::string& device, std::uint64_t devices) {
    RunOptions run = options_with(Policy::kOffloadAll);
    run.device = device;
    run.link_shared_by = devices;
    return plan_run(run).prediction.step_seconds;
  };
  EXPECT_GT(step_seconds("sim:v100-16", 2), 1.5 * step_seconds("sim:v100-16", 1));
  EXPECT_EQ(step_seconds("sim:v100-16", 4), step_seconds("sim:v100-16", 2))
      << "the other two devices have a root of their own";
  EXPECT_THROW(step_seconds("sim:v100-16", 0), InvalidArgument);
  EXPECT_THROW(step_seconds("sim:titan-x", 4), InvalidArgument) << "the profile has no root";
}

// --- auto --------------------------------------------------------------------------------------------------

class PlannedRunCosts : public testing::TemporaryDirectory {};

// A run whose costs are replaced by its own expected costs keeps its prediction, with a profile of measured
// costs and without, on a shared link and on an unshared one.
TEST_F(PlannedRunCosts, OfTheRunItselfChangeNothing) {
  RunOptions asked{.model = {.model = "vgg16", .batch = 8},
                   .device = "sim:v100-16",
                   .policy = Policy::kOffloadAll,
                   .training = {}};
  const std::filesystem::path profile = directory_ / "profile.json";
  std::ofstream(profile) << to_text(expected_costs(plan_run(asked)));
  for (const bool measured : {false, true}) {
    for (const std::uint64_t sharing : {1U, 2U}) {
      SCOPED_TRACE((measured ? "measured, by " : "not measured, by ") + std::to_string(sharing));
      asked.profile = measured ? std::optional(profile) : std::nullopt;
      asked.link_shared_by = sharing;
      const PlannedRun run = plan_run(asked);
      ASSERT_EQ(run.measured.has_value(), measured);
      const PlannedRun same = with_costs(run, expected_costs(run));
      const SimProfile& before = run.target.profile;
      const SimProfile& after = same.target.profile;
      EXPECT_EQ(after.link_bytes_per_second.device_to_host, before.link_bytes_per_second.device_to_host);
      EXPECT_EQ(after.link_bytes_per_second.host_to_device, before.link_bytes_per_second.host_to_device);
      EXPECT_EQ(after.link_bytes_per_second_both_ways.device_to_host,
                before.link_bytes_per_second_both_ways.device_to_host);
      EXPECT_EQ(after.link_bytes_per_second_both_ways.host_to_device,
                before.link_bytes_per_second_both_ways.host_to_device);
      EXPECT_EQ(after.launch_seconds, before.launch_seconds);
      EXPECT_EQ(same.prediction.step_seconds, run.prediction.step_seconds);
    }
  }
}

TEST(PlannedRunAuto, IsNoneWhereThatFitsElseOptimal) {
  const std::uint64_t none = plan_run(options_with(Policy::kOffloadNone)).smallest_budget_bytes();
  const std::uint64_t optimal = plan_run(options_with(Policy::kOptimal)).smallest_budget_bytes();
  ASSERT_GT(none, optimal);
  EXPECT_EQ(chosen_in(kAmple), Policy::kOffloadNone);
  EXPECT_EQ(chosen_in(none), Policy::kOffloadNone);
  EXPECT_EQ(chosen_in(none - kGranule), Policy::kOptimal);
  EXPECT_EQ(chosen_in(optimal), Policy::kOptimal);
}

TEST(PlannedRunAuto, SettlesOnOptimalWhereNothingFits) {
  RunOptions run = options();
  run.memory_bytes = kGranule;
  const PlannedRun planned = plan_run(run);
  EXPECT_EQ(planned.plan.options.policy, Policy::kOptimal);
  EXPECT_FALSE(planned.fits());
}

TEST(PlannedRunAuto, MovesNothingWhereThereIsNoPageLockedMemoryForIt) {
  const PlannedRun none = plan_run(options_with(Policy::kOffloadNone));
  RunOptions run = options();
  run.host_memory_bytes = none.prediction.host_bytes;
  EXPECT_EQ(plan_run(run).plan.options.policy, Policy::kOffloadNone);
  run.memory_bytes = none.smallest_budget_bytes() - kGranule;
  const PlannedRun planned = plan_run(run);
  EXPECT_EQ(planned.plan.options.policy, Policy::kOptimal);
  EXPECT_TRUE(planned.fits());
  EXPECT_TRUE(planned.plan.transfers.empty());
  run.host_memory_bytes = none.prediction.host_bytes - 1;
  EXPECT_FALSE(plan_run(run).fits()) << "page-locked memory is too small for the batches";
}

// --- fits --------------------------------------------------------------------------------------------------

std::string refusal(const PlannedRun& run) {
  try {
    require_fit(run);
  } catch (const OutOfMemory& error) {
    EXPECT_GT(error.shortage().asked, error.shortage().budget);
    return error.what();
  }
  return "fits";
}

// The text uses the names of RunOptions, since the library's caller has no command line.
TEST(PlannedRunFits, SaysWhichOptionsWouldHelp) {
  RunOptions run = options_with(Policy::kOffloadNone);
  run.model.model = "lenet";
  run.model.batch = 64;
  run.memory_bytes = plan_run(run).smallest_budget_bytes() - kGranule;
  const PlannedRun planned = plan_run(run);
  std::string text;
  try {
    require_fit(planned, WaysOut::kTold);
  } catch (const OutOfMemory& error) {
    text = error.what();
  }
  EXPECT_THAT(text, StartsWith("policy none on cpu needs 64 KiB more than memory_bytes = " +
                               std::to_string(*run.memory_bytes) + ": smallest budget "));
  EXPECT_THAT(text, HasSubstr(" (memory_bytes = " + std::to_string(planned.smallest_budget_bytes()) + ");"));
  EXPECT_THAT(text, HasSubstr("; policy = optimal fits with a step of "));
  EXPECT_THAT(text,
              HasSubstr("; model.batch = 32, training.micro_steps = 2 fits with the same global batch;"));
  EXPECT_THAT(text, Not(HasSubstr("--"))) << "there is no command line";
  const std::string option = "model.batch = ";
  const std::size_t begin = text.find(option);
  ASSERT_NE(begin, std::string::npos) << text;
  run.model.batch = std::stoll(text.substr(begin + option.size()));
  EXPECT_TRUE(plan_run(run).fits());
  run.model.batch += std::max(std::int64_t{1}, run.model.batch / 25);
  EXPECT_FALSE(plan_run(run).fits());
  EXPECT_THAT(refusal(planned), Not(HasSubstr("model.batch"))) << "only the error computes ways out";
}

TEST(PlannedRunFits, NamesTheDefaultBudgetWhereNoneWasGiven) {
  RunOptions run = options("vgg16", 256);
  run.device = "sim:titan-x";
  run.policy = Policy::kOffloadNone;
  run.memory_bytes.reset();
  EXPECT_THAT(refusal(plan_run(run)), HasSubstr(" more than the default budget of sim:titan-x, 12 GiB ("));
}

TEST(PlannedRunFits, NamesThePageLockedMemoryThatIsShort) {
  RunOptions run = options_with(Policy::kOffloadAll);
  const std::uint64_t needed = plan_run(run).prediction.host_bytes;
  run.host_memory_bytes = needed - (1 << 20);
  EXPECT_THAT(refusal(plan_run(run)),
              AllOf(HasSubstr("needs 1 MiB more page-locked memory than host_memory_bytes = "),
                    HasSubstr(" (host_memory_bytes = " + std::to_string(needed) + ")")));
}

// The search tries only a few batches, but the batch that it reports fits.
TEST(PlannedRunFits, SaysWhatFitsUnderAPolicyThatChoosesToo) {
  RunOptions run = options_with(Policy::kOptimal);
  run.memory_bytes = plan_run(run).smallest_budget_bytes() / 10 * 9;
  std::string text;
  try {
    require_fit(plan_run(run), WaysOut::kTold);
  } catch (const OutOfMemory& error) {
    text = error.what();
  }
  EXPECT_THAT(text, Not(HasSubstr("policy = optimal fits"))) << "the run already has that policy";
  const std::string option = "; model.batch = ";
  const std::size_t begin = text.find(option);
  ASSERT_NE(begin, std::string::npos) << text;
  run.model.batch = std::stoll(text.substr(begin + option.size()));
  EXPECT_TRUE(plan_run(run).fits()) << text;
  EXPECT_THAT(text, HasSubstr(" fits with the same global batch"));
}

// --- kept algorithms ---------------------------------------------------------------------------------------

TEST(PlannedRunKeptAlgorithms, AreThoseOfNoneWhateverTheBudget) {
  const PlannedRun none = plan_run(options_with(Policy::kOffloadNone));
  for (const std::optional<Policy> policy :
       {std::optional<Policy>(), std::optional(Policy::kDynamic), std::optional(Policy::kOptimal)}) {
    SCOPED_TRACE(policy ? to_string(*policy) : "auto");
    RunOptions run = options();
    run.policy = policy;
    run.keep_algorithms = true;
    run.memory_bytes = kGranule;
    const PlannedRun refused = plan_run(run);
    EXPECT_FALSE(refused.fits());
    run.memory_bytes = refused.smallest_budget_bytes();
    const PlannedRun kept = plan_run(run);
    EXPECT_TRUE(kept.fits());
    EXPECT_LT(kept.prediction.peak_bytes, none.prediction.peak_bytes);
    EXPECT_EQ(kept.plan.algorithms, none.plan.algorithms);
    EXPECT_EQ(refused.plan.algorithms, none.plan.algorithms);
    EXPECT_TRUE(ops_with_other_algorithms(kept).empty());
    *run.memory_bytes -= kGranule;
    EXPECT_FALSE(plan_run(run).fits());
  }
}

TEST(PlannedRunKeptAlgorithms, WhereTheyAreNotTheOpsAreNamed) {
  RunOptions run = options("fashion-vgg", 8);
  run.policy = Policy::kOptimal;
  run.memory_bytes = plan_run(run).smallest_budget_bytes();
  const PlannedRun tight = plan_run(run);
  run.policy = Policy::kOffloadNone;
  const PlannedRun none = plan_run(run);
  std::vector<std::string> expected;
  for (OpId id = 0; id < tight.tape->ops().size(); ++id) {
    if (tight.plan.algorithms[id] != none.plan.algorithms[id]) {
      expected.push_back(tight.tape->op(id).name);
    }
  }
  EXPECT_FALSE(expected.empty());
  EXPECT_EQ(ops_with_other_algorithms(tight), expected);
  EXPECT_TRUE(ops_with_other_algorithms(none).empty());
}

TEST(PlannedRunKeptAlgorithms, AreAWayOutWhereOthersFit) {
  RunOptions run = options("fashion-vgg", 8);
  run.policy = Policy::kOptimal;
  const std::uint64_t free = plan_run(run).smallest_budget_bytes();
  run.keep_algorithms = true;
  const std::uint64_t kept = plan_run(run).smallest_budget_bytes();
  ASSERT_LT(free, kept);
  const auto told = [&](std::uint64_t budget) -> std::string {
    run.memory_bytes = budget;
    try {
      require_fit(plan_run(run), WaysOut::kTold);
    } catch (const OutOfMemory& error) {
      return error.what();
    }
    return "fits";
  };
  EXPECT_EQ(told(kept), "fits");
  const std::string way = "; keep_algorithms = false, policy = optimal fits with a step of ";
  EXPECT_THAT(told(free), AllOf(HasSubstr("memory_bytes = " + std::to_string(kept) + ")"), HasSubstr(way)));
  EXPECT_THAT(told(free - kGranule), Not(HasSubstr(way)));
}

TEST(PlannedRunKeptAlgorithms, AreKeptWherePlansAreMadeAnew) {
  RunOptions run = options_with(Policy::kOptimal);
  run.keep_algorithms = true;
  const PlannedRun kept = plan_run(run);
  EXPECT_EQ(replan_run(kept).plan.algorithms, kept.plan.algorithms);
  EXPECT_THROW(replan_run(kept, {.change_algorithms = true, .policy = {}}), InvalidArgument);
}

class PlannedRunPolicies : public ::testing::TestWithParam<Policy> {};

INSTANTIATE_TEST_SUITE_P(All, PlannedRunPolicies, ::testing::ValuesIn(testing::kPolicies),
                         [](const auto& test) { return to_string(test.param); });

TEST_P(PlannedRunPolicies, FitIntoJustTheSmallestBudget) {
  RunOptions run = options_with(GetParam());
  const PlannedRun ample = plan_run(run);
  EXPECT_TRUE(ample.fits());
  EXPECT_EQ(ample.smallest_budget_bytes() % kGranule, 0U);

  run.memory_bytes = ample.smallest_budget_bytes();
  EXPECT_TRUE(plan_run(run).fits());
  EXPECT_EQ(refusal(plan_run(run)), "fits");
  EXPECT_EQ(plan_run(run).prediction.peak_bytes, ample.prediction.peak_bytes)
      << "the budget does not change the plan of a policy";

  run.memory_bytes = ample.smallest_budget_bytes() - kGranule;
  EXPECT_FALSE(plan_run(run).fits());
  EXPECT_THAT(refusal(plan_run(run)), AllOf(HasSubstr("policy " + to_string(GetParam())),
                                            HasSubstr(std::to_string(ample.smallest_budget_bytes())),
                                            HasSubstr(std::to_string(*run.memory_bytes))));
}

// Every plan stages batches in page-locked memory. If there is too little for that, the smallest budget must
// not depend on the budget, either.
TEST(PlannedRunOptimal, HasOneSmallestBudgetIfBatchesExceedThePageLockedMemory) {
  RunOptions run{
      .model = {.model = "googlenet", .batch = 64}, .device = "sim:titan-x", .policy = Policy::kOffloadNone};
  const PlannedRun none = plan_run(run);
  run.host_memory_bytes = none.prediction.host_bytes - 1;
  run.policy = Policy::kOptimal;
  const PlannedRun ample = plan_run(run);
  EXPECT_FALSE(ample.fits());
  EXPECT_LT(ample.smallest_budget_bytes(), none.smallest_budget_bytes());
  run.memory_bytes = ample.smallest_budget_bytes();
  const PlannedRun small = plan_run(run);
  EXPECT_FALSE(small.fits());
  EXPECT_EQ(small.smallest_budget_bytes(), ample.smallest_budget_bytes());
}

TEST_P(PlannedRunPolicies, FitIntoJustThePageLockedMemoryPredicted) {
  RunOptions run = options_with(GetParam());
  run.host_memory_bytes = plan_run(run).prediction.host_bytes;
  EXPECT_TRUE(plan_run(run).fits());
  --*run.host_memory_bytes;
  EXPECT_FALSE(plan_run(run).fits());
  EXPECT_THAT(refusal(plan_run(run)), HasSubstr("page-locked"));
}

TEST_P(PlannedRunPolicies, ArePredictedAlikeFromAnyOtherRun) {
  const PlannedRun run = plan_run(options_with(GetParam()));
  for (const Policy other : testing::kPolicies) {
    const Prediction alone = plan_run(options_with(other)).prediction;
    const Prediction from_here = predict_policy(run, {.policy = other});
    EXPECT_EQ(from_here.peak_bytes, alone.peak_bytes) << to_string(other);
    EXPECT_EQ(from_here.host_bytes, alone.host_bytes) << to_string(other);
    EXPECT_EQ(from_here.step_seconds, alone.step_seconds) << to_string(other);
  }
}

// --- devices -----------------------------------------------------------------------------------------------

TEST(PlannedRunDevices, UnknownOnesAreNamed) {
  for (const std::string device :
       {"tpu", "cuda", "cuda:", "cuda:-1", "cuda:0x", "cpu:1", "sim:", "sim:nobody", ""}) {
    RunOptions run = options();
    run.device = device;
    EXPECT_THROW(plan_run(run), InvalidArgument) << "'" << device << "'";
  }
}

TEST(PlannedRunDevices, SimulatedOnesPlanEveryModelAndPolicy) {
  for (const std::string device : {"sim:titan-x", "sim:h200"}) {
    for (const std::string& model : {std::string("lenet"), std::string("fashion-vgg")}) {
      for (const Policy policy : testing::kPolicies) {
        SCOPED_TRACE(::testing::Message() << device << " " << model << " " << to_string(policy));
        RunOptions run = options(model, 128);
        run.device = device;
        run.policy = policy;
        run.memory_bytes.reset();
        const PlannedRun planned = plan_run(run);
        EXPECT_TRUE(planned.target.simulated);
        EXPECT_EQ(planned.target.budget_bytes, planned.target.profile.memory_bytes);
        EXPECT_TRUE(planned.fits());
        EXPECT_EQ(planned.prediction.peak_bytes % planned.target.profile.granule_bytes, 0U);
        EXPECT_GE(planned.prediction.step_seconds, 0.999999 * lower_bound_step_seconds(planned));
      }
    }
  }
}

RunOptions simulated(const std::string& gpu, std::int64_t batch) {
  RunOptions run = options("alexnet", batch);
  run.device = "sim:" + gpu;
  run.policy = Policy::kOffloadNone;
  run.memory_bytes.reset();
  return run;
}

std::uint64_t largest_workspace(const RunOptions& run) {
  const PlannedRun planned = plan_run(run);
  std::uint64_t largest = 0;
  for (std::uint32_t id = 0; id < planned.tape->ops().size(); ++id) {
    largest = std::max(largest, planned.tape->op(id).algorithms[planned.plan.algorithms[id]].workspace_bytes);
  }
  return largest;
}

std::map<std::string, std::string> algorithms_by_op(const PlannedRun& run) {
  std::map<std::string, std::string> names;
  for (std::uint32_t id = 0; id < run.tape->ops().size(); ++id) {
    const Op& op = run.tape->op(id);
    names.emplace(op.name, op.algorithms[run.plan.algorithms[id]].name);
  }
  return names;
}

// An algorithm that rounds to TF32 has its own name, and a run without TF32 refuses a record with that name.
TEST(PlannedRunDevices, Tf32ChangesTheEnginesOfSimulatedGpusAndTheirNames) {
  for (const std::string gpu : {"a100", "rtx4090", "h100", "h200", "b200"}) {
    RunOptions run = simulated(gpu, 64);
    run.tf32 = false;
    const PlannedRun plain = plan_run(run);
    run.tf32 = true;
    const PlannedRun rounding = plan_run(run);
    std::size_t rounded = 0;
    for (const auto& [op, algorithm] : algorithms_by_op(rounding)) {
      rounded += static_cast<std::size_t>(algorithm.ends_with(" in tf32"));
    }
    EXPECT_GT(rounded, 10U) << gpu;
    for (const auto& [op, algorithm] : algorithms_by_op(plain)) {
      EXPECT_FALSE(algorithm.ends_with(" in tf32")) << gpu << ": " << op;
    }
    EXPECT_EQ(rounding.catalog->algorithms_source(), plain.catalog->algorithms_source() + ", tf32");
    run.recorded_algorithms = algorithms_by_op(rounding);
    EXPECT_EQ(algorithms_by_op(plan_run(run)), run.recorded_algorithms);
    run.tf32 = false;
    EXPECT_THROW(plan_run(run), InvalidArgument);
  }
}

// As in PyTorch, convolutions round to TF32 by default. With convolutions in fp32, no step is faster.
// Regression: --tf32 changed no prediction.
TEST(PlannedRunDevices, ConvolutionsAreInTf32ByDefaultOnGpusThatHaveIt) {
  for (const std::string gpu : {"a100", "rtx4090", "h100", "h200", "b200"}) {
    SCOPED_TRACE(gpu);
    RunOptions run = simulated(gpu, 64);
    const PlannedRun usual = plan_run(run);
    EXPECT_EQ(usual.product_precisions(), (ProductPrecisions{.convolutions = ProductPrecision::kTf32}));
    EXPECT_THAT(usual.catalog->algorithms_source(), EndsWith(", tf32 convolutions"));
    run.tf32 = true;
    EXPECT_EQ(plan_run(run).product_precisions(),
              (ProductPrecisions{.convolutions = ProductPrecision::kTf32,
                                 .matrix_products = ProductPrecision::kTf32}));
    run.tf32 = false;
    const PlannedRun fp32 = plan_run(run);
    EXPECT_EQ(fp32.product_precisions(), ProductPrecisions());
    if (gpu == "rtx4090") {  // its tensor cores multiply TF32 no faster than its other cores multiply fp32
      EXPECT_LE(usual.prediction.step_seconds, fp32.prediction.step_seconds);
    } else {
      EXPECT_LT(usual.prediction.step_seconds, 0.9 * fp32.prediction.step_seconds);
    }
    // A run resumed from a checkpoint keeps the checkpoint's precision.
    run.tf32.reset();
    run.recorded_algorithms = algorithms_by_op(fp32);
    EXPECT_EQ(plan_run(run).product_precisions(), ProductPrecisions());
    run.recorded_algorithms = algorithms_by_op(usual);
    EXPECT_EQ(plan_run(run).product_precisions(), usual.product_precisions());
  }
  for (const std::string gpu : {"titan-x", "v100-16", "v100-32", "cpu"}) {
    EXPECT_EQ(plan_run(simulated(gpu, 64)).product_precisions(), ProductPrecisions()) << gpu;
  }
}

double images_per_second(const PlannedRun& run) {
  EXPECT_TRUE(run.fits()) << run.target.name;
  return static_cast<double>(run.batch()) / run.prediction.step_seconds;
}

// Published by NVIDIA (github.com/NVIDIA/DeepLearningExamples, PyTorch/Classification/ConvNets/resnet50v1.5),
// images/s on one GPU. Each number determines one efficiency, of a GPU and an element type.
TEST(PlannedRunThroughput, OfResNet50IsWithin15PercentOfWhatNvidiaPublished) {
  const auto expect = [](const std::string& device, std::int64_t batch, DataType storage, double published) {
    const double predicted =
        images_per_second(plan_run({.model = {.model = "resnet50", .batch = batch},
                                    .device = device,
                                    .policy = Policy::kOffloadNone,
                                    .training = {.optimizer = SgdSpec{.momentum = 0.875F},
                                                 .precision = {.storage = storage, .fp32_layers = {}}}}));
    std::cout << "resnet50(" << batch << ") on " << device << ", " << to_string(storage) << ": predicted "
              << predicted << " images/s, published " << published << "\n";
    EXPECT_NEAR(predicted, published, 0.15 * published) << device;
  };
  expect("sim:v100-16", 128, DataType::kF32, 367);
  expect("sim:v100-32", 128, DataType::kF32, 356);
  expect("sim:a100", 256, DataType::kF32, 938);  // convolutions in TF32
  expect("sim:v100-16", 256, DataType::kF16, 1200);
  expect("sim:a100", 256, DataType::kF16, 2470);
}

// GPUs without a profile of their own.
class AlteredProfiles : public testing::TemporaryDirectory {
 protected:
  using Edit = std::pair<std::string, std::string>;

  // An A100 with these changes to its profile.
  std::string altered_a100(const std::string& name, const std::vector<Edit>& edits) {
    std::ifstream file(VDNN_DEVICES_DIRECTORY "/a100.json");
    std::string text{std::istreambuf_iterator<char>(file), {}};
    for (const auto& [words, others] : edits) {
      text.replace(text.find(words), words.size(), others);
    }
    write(name + ".json", text);
    return "sim:" + (directory_ / (name + ".json")).string();
  }
};

// A row of the table in docs/precision.md: images/s.
struct PublishedThroughput {
  std::string gpu;
  std::string precision;
  std::string model;
  std::int64_t batch;
  double published;
  double predicted;  // the number in the table

  std::string row() const {
    std::ostringstream text;
    text << std::fixed << std::setprecision(0) << "| " << gpu << ", " << precision << " | " << model << ", "
         << batch << " | " << published << " | " << predicted << " | " << std::showpos
         << 100 * (predicted / published - 1) << " % |";
    return text.str();
  }
};

// No efficiency is fitted to these numbers, so their errors are not bounded. If a change of the model or of a
// rate changes a prediction, this test fails, and the table must follow.
class PlannedRunPublishedThroughput : public AlteredProfiles {
 protected:
  // The measured card has less memory than the card of the profile. Its datasheet specifies 1555 GB/s instead
  // of 2039.
  std::string a100_40() {
    return altered_a100("a100-40", {{"\"value\": 85095088128", "\"value\": 42298834944"},
                                    {"\"value\": 1631200000000", "\"value\": 1244000000000"}});
  }

  PlannedRun plan(const PublishedThroughput& each) {
    const bool narrow = each.precision == "fp16";
    return plan_run({.model = {.model = each.model, .batch = each.batch},
                     .device = each.gpu == "A100" ? a100_40() : "sim:v100-32",
                     .policy = Policy::kOffloadNone,
                     .tf32 = each.precision == "TF32" ? std::optional(true) : std::nullopt,
                     .training = {.optimizer = SgdSpec{},
                                  .precision = {.storage = narrow ? DataType::kF16 : DataType::kF32,
                                                .fp32_layers = {}}}});
  }

  void expect_as_in_table(const PublishedThroughput& each) {
    const PlannedRun run = plan(each);
    if (each.gpu == "A100" && !run.algorithms_source().starts_with("cudnn ")) {
      std::cout << each.row() << " not predicted: neither cuDNN nor a record has its engines\n";
      return;
    }
    const double now = images_per_second(run);
    std::cout << each.row() << " now " << now << "\n";
    EXPECT_NEAR(now, each.predicted, 0.02 * each.predicted) << each.row();
  }
};

TEST_F(PlannedRunPublishedThroughput, OfOtherNetworksIsPredictedAsThePageSays) {
  std::ifstream file(VDNN_DOCS_DIRECTORY "/precision.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  for (const PublishedThroughput& each : {PublishedThroughput{"V100", "fp32", "resnet152", 96, 167, 150},
                                          {"V100", "fp16", "resnet152", 192, 518, 453},
                                          {"V100", "fp32", "vgg16", 192, 249, 211},
                                          {"V100", "fp16", "vgg16", 384, 456, 639},
                                          {"A100", "TF32", "resnet152", 112, 390, 330},
                                          {"A100", "fp16", "resnet152", 200, 886, 876},
                                          {"A100", "TF32", "vgg16", 224, 504, 406},
                                          {"A100", "fp16", "vgg16", 448, 1190, 1467}}) {
    expect_as_in_table(each);
    EXPECT_NE(page.find(each.row()), std::string::npos) << "docs/precision.md is without " << each.row();
  }
}

// Regression: without cuDNN and without recorded engines, predictions assumed 11.7 TFLOP/s, the rate of fp32,
// also for types that tensor cores multiply.
class PlannedRunUnknownEngines : public AlteredProfiles {
 protected:
  // An A100 under a name for which no engines are recorded.
  std::string unknown_gpu() {
    return altered_a100("nobodys", {{"\"name\": \"a100\"", "\"name\": \"nobodys\""}});
  }
  static RunOptions resnet50(const std::string& device) {
    return {.model = {.model = "resnet50", .batch = 256},
            .device = device,
            .policy = Policy::kOffloadNone,
            .training = {.optimizer = SgdSpec{.momentum = 0.875F}}};
  }
};

TEST_F(PlannedRunUnknownEngines, LeaveTheRatesOfTheTypesAsTheyAre) {
  RunOptions run = resnet50(unknown_gpu());
  const PlannedRun usual = plan_run(run);
  EXPECT_EQ(usual.algorithms_source(), "classic, tf32 convolutions");
  EXPECT_EQ(usual.product_precisions(), (ProductPrecisions{.convolutions = ProductPrecision::kTf32}));
  EXPECT_NEAR(256 / usual.prediction.step_seconds, 938, 0.15 * 938)
      << "the prediction is as good as with engines, TF32, 80 GB";
  run.tf32 = true;
  const PlannedRun all = plan_run(run);
  EXPECT_EQ(all.algorithms_source(), "classic, tf32");
  EXPECT_EQ(all.product_precisions().matrix_products, ProductPrecision::kTf32);
  EXPECT_LT(all.prediction.step_seconds, usual.prediction.step_seconds);
  run.training.precision.storage = DataType::kBf16;
  EXPECT_EQ(plan_run(run).algorithms_source(), "classic, tf32, bf16 modelled");
  run.training.precision.storage = DataType::kF32;
  run.tf32 = false;
  const PlannedRun fp32 = plan_run(run);
  EXPECT_EQ(fp32.algorithms_source(), "classic");
  EXPECT_EQ(fp32.product_precisions(), ProductPrecisions());
  EXPECT_GT(fp32.prediction.step_seconds, 1.2 * usual.prediction.step_seconds);
}

TEST_F(PlannedRunUnknownEngines, GoOnInThePrecisionThatWasRecorded) {
  RunOptions run = resnet50(unknown_gpu());
  run.tf32 = true;
  const PlannedRun all = plan_run(run);
  run.tf32.reset();
  run.recorded_algorithms = algorithms_by_op(all);
  EXPECT_EQ(plan_run(run).product_precisions(), all.product_precisions());
}

TEST(PlannedRunDevices, Tf32AndEngineTimingsAreRefusedWhereTheyWouldChangeNothing) {
  for (const std::string device : {"cpu", "sim:cpu", "sim:titan-x"}) {
    RunOptions run = options("lenet", 64);
    run.device = device;
    run.tf32 = true;
    EXPECT_THROW(plan_run(run), InvalidArgument) << device;
    run.tf32 = false;
    run.engine_timings = "timings.json";
    EXPECT_THROW(plan_run(run), InvalidArgument) << device;
    run.engine_timings.reset();
    run.engine_trial_seconds = 5;
    EXPECT_THROW(plan_run(run), InvalidArgument) << device;
  }
  RunOptions run = simulated("h200", 64);
  run.engine_timings = "timings.json";
  EXPECT_THROW(plan_run(run), InvalidArgument);
}

TEST(PlannedRunDevices, SimulatedGpusPlanWithTheEnginesThatTheyHave) {
  for (const std::string gpu : {"a100", "rtx4090", "h100", "h200", "b200"}) {
    SCOPED_TRACE(gpu);
    RunOptions run = simulated(gpu, 64);
    EXPECT_THAT(plan_run(run).catalog->algorithms_source(), StartsWith("cudnn 9."));
    const std::uint64_t fast = largest_workspace(run);
    run.workspace_limit = fast - 1;
    EXPECT_LT(largest_workspace(run), fast);
    run.workspace_limit.reset();
    run.algorithms = AlgorithmPreference::kMemory;
    EXPECT_LT(largest_workspace(run), fast);
  }
  EXPECT_EQ(plan_run(simulated("titan-x", 64)).catalog->algorithms_source(), "classic");
}

// Regression: small limits were refused for every network with a fully connected layer, since each of its
// matrix products counted as 4 MiB of workspace.
TEST(PlannedRunDevices, SimulatedGpusKeepSmallLimitsOnWorkspace) {
  RunOptions run = simulated("h200", 64);
  run.model.model = "lenet";
  for (const std::uint64_t limit : {std::uint64_t{8} << 10U, std::uint64_t{1} << 20U}) {
    run.workspace_limit = limit;
    EXPECT_LE(largest_workspace(run), limit);
  }
}

// In VGG-16 convolutions need more workspace than matrix products.
TEST(PlannedRunDevices, MatrixProductsOfSimulatedGpusStepDownWithThePreferenceAndTheLimit) {
  const auto product = [](const RunOptions& run) {
    return algorithms_by_op(plan_run(run)).at("fc1.forward");
  };
  RunOptions run = simulated("h200", 64);
  run.model.model = "vgg16";
  EXPECT_EQ(product(run), "cublaslt");
  run.algorithms = AlgorithmPreference::kMemory;
  EXPECT_EQ(product(run), "cublaslt without workspace");
  run.workspace_limit = largest_workspace(run);
  run.algorithms = AlgorithmPreference::kPerformance;
  EXPECT_GE(*run.workspace_limit, std::uint64_t{4} << 20U);
  EXPECT_EQ(product(run), "cublaslt") << "it fits";
  run.model.model = "alexnet";
  run.workspace_limit = std::uint64_t{2} << 20U;
  EXPECT_EQ(product(run), "cublaslt without workspace");
}

TEST(PlannedRunDevices, EnginesThatAreNotRecordedAreThoseOfCudnnOrClassic) {
  const std::string source = plan_run(simulated("h200", 63)).catalog->algorithms_source();
  EXPECT_THAT(source,
              AnyOf("classic, tf32 convolutions", AllOf(StartsWith("cudnn 9."), Not(HasSubstr("recorded")))));
}

TEST(DefaultEngineCache, IsWhereXdgSaysOrInHome) {
  EXPECT_EQ(default_engine_cache("/var/cache", "/home/me"), "/var/cache/vdnn/engine_timings.json");
  const std::filesystem::path at_home = "/home/me/.cache/vdnn/engine_timings.json";
  EXPECT_EQ(default_engine_cache(std::nullopt, "/home/me"), at_home);
  EXPECT_EQ(default_engine_cache("", "/home/me"), at_home);
  EXPECT_EQ(default_engine_cache("cache", "/home/me"), at_home) << "relative paths are ignored";
  EXPECT_EQ(default_engine_cache("cache", std::nullopt), std::nullopt);
  EXPECT_EQ(default_engine_cache(std::nullopt, ""), std::nullopt);
}

// --- options -----------------------------------------------------------------------------------------------

void expect_refused(const RunOptions& run, const char* what) {
  EXPECT_THROW(plan_run(run), InvalidArgument) << what;
}

TEST(PlannedRunOptions, ImpossibleOnesAreRefused) {
  RunOptions run = options();
  run.memory_bytes = 0;
  expect_refused(run, "no memory");
  run = options();
  run.host_memory_bytes = 0;
  expect_refused(run, "no host memory");
  run = options();
  run.threads = -1;
  expect_refused(run, "threads");
  run = options("no such model");
  expect_refused(run, "model");
  run = options("lenet", 0);
  expect_refused(run, "batch");
}

TEST(PlannedRunOptions, ALimitOnWorkspaceHolds) {
  RunOptions run = options_with(Policy::kOffloadNone);
  const PlannedRun free = plan_run(run);
  run.algorithms = AlgorithmPreference::kMemory;
  const std::uint64_t least = workspace_bytes(*free.tape, plan_run(run).plan);
  run.algorithms = AlgorithmPreference::kPerformance;
  run.workspace_limit = least;
  const PlannedRun limited = plan_run(run);
  EXPECT_LE(workspace_bytes(*limited.tape, limited.plan), least);
  EXPECT_LE(limited.prediction.peak_bytes, free.prediction.peak_bytes);
}

// --- schedules from elsewhere ------------------------------------------------------------------------------

TEST(PlannedRunWithSchedule, IsPredictedAsIfItHadBeenMade) {
  const RunOptions run = options_with(Policy::kOffloadAll);
  const PlannedRun made = plan_run(run);
  const PlannedRun given = plan_run_with_schedule(run, [&](const Tape&) { return made.schedule; });
  EXPECT_EQ(given.schedule.instructions, made.schedule.instructions);
  EXPECT_EQ(given.plan.algorithms, made.plan.algorithms);
  EXPECT_EQ(given.prediction.peak_bytes, made.prediction.peak_bytes);
  EXPECT_EQ(given.prediction.step_seconds, made.prediction.step_seconds);
}

TEST(PlannedRunWithSchedule, IsCheckedFirst) {
  const RunOptions run = options_with(Policy::kOffloadAll);
  Schedule broken = plan_run(run).schedule;
  broken.instructions.pop_back();
  EXPECT_THROW(plan_run_with_schedule(run, [&](const Tape&) { return broken; }), ScheduleError);
}

// --- evaluation --------------------------------------------------------------------------------------------

TEST(PlanEvaluation, NeverNeedsMoreThanTraining) {
  for (const std::string& model : {std::string("lenet"), std::string("fashion-vgg")}) {
    for (const std::int64_t batch : {1, 7, 16, 64}) {
      for (const Policy policy : testing::kPolicies) {
        SCOPED_TRACE(::testing::Message() << model << " batch " << batch << " " << to_string(policy));
        RunOptions run = options(model, batch);
        run.policy = policy;
        const PlannedRun planned = plan_run(run);
        const EvaluationPlan evaluation = plan_evaluation(planned);
        EXPECT_EQ(batch % evaluation.batch, 0);
        EXPECT_LE(predict_evaluation_peak(*planned.tape, *evaluation.tape, evaluation.schedule,
                                          {.profile = planned.target.profile}),
                  planned.prediction.peak_bytes);
      }
    }
  }
}

// y = a x. The test chooses the recipe for inference.
class Scaling final : public CustomLayer {
 public:
  using Change = std::function<void(const CustomQuestion&, LayerRecipe&)>;
  explicit Scaling(Change in_inference) : in_inference_(std::move(in_inference)) {}
  std::string kind() const override { return "scaling"; }
  TensorType output(std::span<const TensorType> inputs) const override { return inputs[0]; }
  LayerRecipe describe(const CustomQuestion& question) const override {
    using enum OperandRole;
    LayerRecipe recipe{.parameters = {{.name = "factor", .type = {.dims = {1}}}}};
    recipe.forward = {{.reads = {{kInput, 0}, {kParameter, 0}},
                       .writes = {{kOutput, 0}},
                       .algorithms = {{.name = "only"}}}};
    if (question.mode == Mode::kInference) {
      in_inference_(question, recipe);
    } else {
      recipe.backward = {{.direction = Direction::kBackwardFilter,
                          .reads = {{kInput, 0}, {kOutputGradient, 0}},
                          .writes = {{kParameterGradient, 0}},
                          .algorithms = {{.name = "only"}}}};
    }
    return recipe;
  }
  void run(const CustomLaunch&) const override {}

 private:
  Change in_inference_;
};

// The batch is four, since the normalisation after the classifier has no variance with one sample.
PlannedRun scaled_and_normalised(Scaling::Change in_inference) {
  NetworkBuilder net("scaled", {4, 3, 4, 4});
  Tensor x = net.custom("scale", {net.input()}, std::make_shared<Scaling>(std::move(in_inference)));
  x = net.batch_normalization("bn", net.fully_connected("fc", x, {.outputs = 4}));
  net.softmax_cross_entropy("loss", x);
  return plan_run(std::move(net).build(), options());
}

// Regression: evaluation reported "OutOfMemory: asked 0 bytes" for missing parameters, and no error for
// parameters that differ from those of training.
TEST(PlanEvaluation, NamesAParameterThatIsNotTheSameInInference) {
  const auto error_of = [](const Scaling::Change& in_inference) -> std::string {
    try {
      plan_evaluation(scaled_and_normalised(in_inference));
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(error_of([](const CustomQuestion&, LayerRecipe&) {}), "accepted");
  EXPECT_THAT(error_of([](const CustomQuestion&, LayerRecipe& recipe) {
                recipe.parameters.clear();
                recipe.forward[0].reads.pop_back();
              }),
              HasSubstr("scale.factor"));
  EXPECT_THAT(
      error_of([](const CustomQuestion&, LayerRecipe& recipe) { recipe.parameters[0].name = "other"; }),
      AllOf(HasSubstr("scale.factor"), HasSubstr("scale.other")));
  EXPECT_THAT(
      error_of([](const CustomQuestion&, LayerRecipe& recipe) { recipe.parameters[0].type.dims = {2}; }),
      AllOf(HasSubstr("scale.factor"), HasSubstr("is 2 in evaluation")));
}

TEST(PlanEvaluation, NamesAParameterThatTheLastLayerLacks) {
  NetworkBuilder net("scaled", {4, 8});
  net.softmax_cross_entropy(
      "loss", net.custom("scale", {net.input()},
                         std::make_shared<Scaling>([](const CustomQuestion&, LayerRecipe& recipe) {
                           recipe.parameters.clear();
                           recipe.forward[0].reads.pop_back();
                         })));
  const PlannedRun run = plan_run(std::move(net).build(), options());
  try {
    plan_evaluation(run);
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("parameter scale.factor is missing in evaluation"));
  }
}

// Regression: the search for a batch that fits also tried one that the network cannot have, and passed the
// exception on to the caller, who had not chosen that batch.
TEST(PlanEvaluation, SaysWhatTheSmallestTryWouldTake) {
  constexpr std::uint64_t kASample = 64 << 20;
  const PlannedRun run = scaled_and_normalised([](const CustomQuestion& question, LayerRecipe& recipe) {
    recipe.forward[0].algorithms[0].workspace_bytes =
        kASample * static_cast<std::uint64_t>(question.inputs[0].dims[0]);
  });
  try {
    plan_evaluation(run);
    FAIL() << "fits";
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(error.what(), HasSubstr("batch 2"));
    EXPECT_GE(error.shortage().asked, 2 * kASample);
    EXPECT_LT(error.shortage().asked, 3 * kASample);
    EXPECT_EQ(error.shortage().budget, run.prediction.peak_bytes);
  }
}

// Regression: a resumed run evaluated with other algorithms than the run that it continues.
TEST(PlanEvaluation, TakesTheAlgorithmsThatTrainingHas) {
  RunOptions usual = options_with(Policy::kOffloadNone);
  usual.device = "sim:titan-x";  // which algorithms `cpu` has depends on the processor
  RunOptions small = usual;
  small.algorithms = AlgorithmPreference::kMemory;
  const PlannedRun recorded = plan_run(small);
  RunOptions resumed = usual;
  for (OpId id = 0; id < recorded.tape->ops().size(); ++id) {
    const Op& op = recorded.tape->op(id);
    resumed.recorded_algorithms[op.name] = op.algorithms[recorded.plan.algorithms[id]].name;
  }
  const std::vector<std::uint32_t> expected = plan_evaluation(recorded).schedule.algorithms;
  ASSERT_NE(plan_evaluation(plan_run(usual)).schedule.algorithms, expected) << "both algorithms must differ";
  EXPECT_EQ(plan_evaluation(plan_run(resumed)).schedule.algorithms, expected);
}

}  // namespace
}  // namespace vdnn::planned_run_test
