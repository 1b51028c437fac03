// How the command interprets its options and describes a run, for devices that this machine does not have.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "src/cli/option_flags.h"
#include "src/cli/options.h"
#include "src/cli/resume.h"
#include "src/cli/summary.h"

namespace vdnn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::json;

RunArguments lenet() {
  RunArguments arguments;
  arguments.model = "lenet";
  arguments.batch = 64;  // the batch whose engines are recorded
  arguments.device = "sim:a100";
  return arguments;
}

PlannedRun planned(const RunArguments& arguments = lenet()) {
  return plan_run(to_run_options(arguments));
}

// --- messages of the library -------------------------------------------------------------------------------

TEST(InFlags, OptionsOfTheLibraryAreFlags) {
  EXPECT_EQ(
      in_flags(InvalidOption(
          {{.option = "from_bytes", .value = "2097152"}, {.option = "to_bytes", .value = "0"}}, "upwards")),
      "--from 2MiB --to 0: upwards");
  EXPECT_EQ(in_flags(InvalidOption({{.option = "network_bytes_per_second", .value = "12.5e9"}}, "slow")),
            "--network-gbytes-per-s 12.500000: slow");
  EXPECT_EQ(in_flags(InvalidOption({{.option = "tf32", .value = "true"}}, "no")),
            "--tf32, or --precision tf32: no");
  EXPECT_EQ(in_flags(InvalidOption({{.option = "recorded_algorithms", .value = ""}}, "no")),
            "recorded_algorithms: no")
      << "an option without a flag";
}

TEST(InFlags, WaysOutAreFlags) {
  const BudgetShortage shortage{.policy = Policy::kOffloadNone,
                                .device = "cpu",
                                .needed_bytes = 3U << 20U,
                                .budget_bytes = 2U << 20U,
                                .fullest_op = "conv1.forward",
                                .ways_out = {{.settings = {{.option = "model.batch", .value = "32"},
                                                           {.option = "training.micro_steps", .value = "2"}},
                                              .effect = "with the same global batch"},
                                             {.settings = {{.option = "keep_algorithms", .value = "false"},
                                                           {.option = "policy", .value = "optimal"}},
                                              .effect = "with a step of 40.1 ms"}}};
  EXPECT_EQ(in_flags(shortage),
            "policy none on cpu needs 1 MiB more than --memory 2MiB: smallest budget 3 MiB (--memory 3MiB); "
            "--batch 32 --accumulate 2 fits with the same global batch; without --keep-algorithms, --policy "
            "optimal fits with a step of 40.1 ms; most memory is in use at conv1.forward");
}

// --- origins of schedules ----------------------------------------------------------------------------------

std::string origin_without(const RunArguments& arguments, const char* key) {
  RunArguments simulated = arguments;
  simulated.engine_timings.reset();  // this machine cannot time the GPU's engines
  Json origin = to_origin(simulated, planned(simulated));
  if (arguments.engine_timings) {
    origin["engine_timings"] = *arguments.engine_timings;
  }
  origin.erase(key);
  return origin.dump();
}

// Schedules from before --engine-trial-seconds have no such key. Nothing was timed by default then, so their
// replay times nothing.
TEST(Origin, WithoutALimitForTrialsNothingIsTimed) {
  EXPECT_EQ(from_origin(origin_without(lenet(), "engine_trial_seconds")).engine_trial_seconds, 0);
  EXPECT_EQ(from_origin(origin_without(lenet(), "no such key")).engine_trial_seconds, std::nullopt);
  RunArguments timed = lenet();
  timed.engine_timings = "times.json";
  EXPECT_EQ(from_origin(origin_without(timed, "engine_trial_seconds")).engine_trial_seconds, std::nullopt);
}

// --- precisions --------------------------------------------------------------------------------------------

// The options in force lead to the same precisions as the run's own options, and so to the same plan. This
// includes a run that resumes with TF32 in its matrix products alone.
TEST(InForce, AreOptionsThatGiveTheSamePrecisions) {
  RunArguments both = lenet();
  both.tf32 = true;
  RunArguments none = lenet();
  none.fp32 = true;
  for (const RunArguments& arguments : {lenet(), both, none}) {
    const PlannedRun run = planned(arguments);
    EXPECT_EQ(planned(in_force(arguments, run)).precisions, run.precisions);
  }
  RunOptions resumed = to_run_options(lenet());
  const PlannedRun in_tf32 = planned(both);
  const PlannedRun in_fp32 = planned(none);
  for (OpId id = 0; id < in_tf32.tape->ops().size(); ++id) {
    const Op& op = in_tf32.tape->op(id);
    const Op& plain = in_fp32.tape->op(id);
    const bool matrix_product = std::holds_alternative<FullyConnectedSpec>(op.spec);
    const PlannedRun& from = matrix_product ? in_tf32 : in_fp32;
    if (op.recorded()) {
      resumed.recorded_algorithms[op.name] =
          (matrix_product ? op : plain).algorithms[from.plan.algorithms[id]].name;
    }
  }
  const PlannedRun run = plan_run(resumed);
  EXPECT_EQ(run.product_precisions(), ProductPrecisions{.matrix_products = ProductPrecision::kTf32});
  const RunArguments arguments = in_force(lenet(), run);
  EXPECT_TRUE(arguments.tf32);
  EXPECT_EQ(planned(arguments).precisions, run.precisions);
}

// --- trials ------------------------------------------------------------------------------------------------

std::string printed(const EngineTrialReport& trials) {
  PlannedRun run = planned();
  run.trials = std::make_shared<const EngineTrialReport>(trials);
  std::ostringstream text;
  print_run(text, run);
  return text.str();
}

TEST(PrintedRun, SaysWhatWasTriedAndLeftOut) {
  const std::string tried = printed({.convolutions = 2, .engines = 7, .seconds = 1.5});
  EXPECT_THAT(tried, HasSubstr("tried 7 engines of 2 convolutions' passes in 1.5 s\n"));
  EXPECT_THAT(tried, Not(HasSubstr("not timed")));
  EXPECT_THAT(
      printed({.untimed = 3}),
      HasSubstr("3 convolutions' passes were not timed; a larger --engine-trial-seconds times them\n"));
  EXPECT_THAT(printed({}), Not(AnyOf(HasSubstr("tried"), HasSubstr("timed"))));
}

// --- resumed runs ------------------------------------------------------------------------------------------

CheckpointInfo written_by(const PlannedRun& run) {
  CheckpointInfo info;
  info.device = "sim";
  info.threads = run.target.threads;
  info.batch = run.batch();
  info.algorithms_source = run.catalog->algorithms_source();
  info.algorithms = run.options.recorded_algorithms;
  return info;
}

// Regression: a run with exactly its checkpoint's algorithms warned if the engines had been timed.
TEST(Resumed, HowTheSameAlgorithmsWereChosenIsNoDifference) {
  const PlannedRun run = planned();
  CheckpointInfo info = written_by(run);
  EXPECT_THAT(differences(info, run), IsEmpty());
  const std::string library = info.algorithms_source.substr(0, info.algorithms_source.find(','));
  info.algorithms_source = library + ", timed, tf32 convolutions";
  EXPECT_THAT(differences(info, run), IsEmpty());
  info.algorithms_source = library + ".1, tf32 convolutions";
  EXPECT_THAT(differences(info, run),
              ElementsAre(HasSubstr("written with algorithms of " + library + ".1,")));
  info.algorithms_source = library + ", timed";
  info.algorithms["conv1.forward"] = "another";
  EXPECT_THAT(differences(info, run), ::testing::Contains(HasSubstr("algorithms of " + library + ", timed")));
}

}  // namespace
}  // namespace vdnn
