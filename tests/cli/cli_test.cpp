// The vdnn command as users run it: a process with an exit status and output.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/cli/command_test.h"
#include "tests/crash/command.h"
#include "tests/report/json_schema.h"
#include "tests/report/xml.h"
#include "vdnn/size.h"
#include "vdnn/zoo.h"

namespace vdnn {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Outcome = testing::CommandOutcome;

class CliTest : public testing::CommandTest {
 protected:
  static json last_line(const std::string& text) {
    const std::size_t end = text.find_last_not_of('\n');
    const std::size_t begin = text.rfind('\n', end);
    return json::parse(text.substr(begin == std::string::npos ? 0 : begin + 1));
  }

  json plan(const std::string& arguments) const {
    const Outcome outcome = run("plan --json /dev/stdout " + arguments);
    EXPECT_THAT(outcome.status, ::testing::AnyOf(0, 3)) << outcome.log;
    json summary = last_line(outcome.out);
    EXPECT_EQ(outcome.status, summary["fits"].get<bool>() ? 0 : 3) << outcome.log;
    return summary;
  }

  // `line` has the type "summary" or "step", and must obey that schema.
  static void expect_obeys_schema(const json& line) {
    const auto schema = testing::read_json(std::string(VDNN_DOCS_DIRECTORY) + "/" +
                                           line["type"].get<std::string>() + ".schema.json");
    EXPECT_THAT(testing::SchemaCheck::errors(schema, line), ::testing::IsEmpty()) << line.dump(1);
  }

  // Runs `vdnn train`, which must succeed, and returns its summary.
  json train(const std::string& arguments) const {
    const Outcome outcome = run("train --json " + path("train.json") + " " + arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.log;
    return last_line(read("train.json"));
  }
};

const std::string kTrain = "train --model lenet --batch 8 --data synthetic --steps 2 ";

TEST_F(CliTest, PlanObeysTheSchemaAndKeepsStandardOutputForJson) {
  const Outcome outcome = run("plan --model lenet --batch 8 --policy all --json /dev/stdout");
  ASSERT_EQ(outcome.status, 0) << outcome.log;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 1);
  expect_obeys_schema(last_line(outcome.out));
  EXPECT_THAT(outcome.log, HasSubstr("predicted peak"));
}

TEST_F(CliTest, PlanSaysHowFarTheStepIsFromTheOracleAndFromTheBound) {
  const std::string options = "--model lenet --batch 8 --policy all --device sim:titan-x";
  const json summary = plan(options);
  const auto milliseconds = [&](const char* key) {
    std::ostringstream text;
    text << std::fixed << std::setprecision(1) << summary[key].get<double>() * 1e3 << " ms";
    return text.str();
  };
  EXPECT_THAT(run("plan " + options).out,
              HasSubstr("; oracle " + milliseconds("oracle_step_seconds") + ", lower bound " +
                        milliseconds("lower_bound_step_seconds") + "\n"));
}

// The summary stays the last line of --json.
TEST_F(CliTest, PlanListsOpsWithTheirAlgorithmsBeforeTheSummary) {
  const std::string options = "--model lenet --batch 8 --device sim:titan-x ";
  const json summary = plan(options);
  ASSERT_EQ(run("plan " + options + "--ops --json " + path("problem.jsonl")).status, 0);
  const auto schema = testing::read_json(std::string(VDNN_DOCS_DIRECTORY) + "/planning_problem.schema.json");
  std::istringstream text(read("problem.jsonl"));
  std::map<std::string, std::size_t> lines;
  for (std::string line; std::getline(text, line);) {
    const json object = json::parse(line);
    ++lines[object["type"]];
    if (object["type"] == "summary") {
      EXPECT_EQ(object, summary);
    } else {
      EXPECT_EQ(lines["summary"], 0U);
      EXPECT_THAT(testing::SchemaCheck::errors(schema, object), ::testing::IsEmpty()) << object;
    }
  }
  EXPECT_EQ(lines["planning_device"], 1U);
  EXPECT_EQ(lines["summary"], 1U);
  ASSERT_EQ(run("plan " + options + "--schedule " + path("schedule.json")).status, 0);
  EXPECT_EQ(lines["planning_op"], json::parse(read("schedule.json"))["algorithms"].size());
}

// Returns the data inside a page of --report.
json data_of(const std::string& page) {
  const std::string open = "id=\"plan-report\">";
  const std::size_t begin = page.find(open) + open.size();
  return json::parse(page.substr(begin, page.find("</script", begin) - begin));
}

TEST_F(CliTest, AReportSaysWhatTheSummarySays) {
  const std::string report = path("report.html");
  const json summary = plan("--model lenet --batch 8 --policy all --device sim:titan-x --report " + report);
  const json data = data_of(read("report.html"));
  const auto schema = testing::read_json(std::string(VDNN_DOCS_DIRECTORY) + "/plan_report.schema.json");
  EXPECT_THAT(testing::SchemaCheck::errors(schema, data), ::testing::IsEmpty());
  EXPECT_EQ(data["configuration"], summary["options"]);
  for (const auto& [key, value] : data["figures"].items()) {
    if (summary.contains(key) && !key.ends_with("_seconds")) {
      EXPECT_EQ(value, summary[key]) << key;
    }
  }
  EXPECT_NEAR(data["figures"]["step_seconds"], summary["predicted_step_seconds"], 1e-9);
  EXPECT_NEAR(data["figures"]["oracle_step_seconds"], summary["oracle_step_seconds"], 1e-9);
  EXPECT_NEAR(data["figures"]["lower_bound_step_seconds"], summary["lower_bound_step_seconds"], 1e-9);
}

TEST_F(CliTest, ADashIsStandardOutput) {
  const std::string plan = "plan --model lenet --batch 8 ";
  const Outcome lines = run(plan + "--json -");
  ASSERT_EQ(lines.status, 0) << lines.log;
  EXPECT_EQ(lines.out, run(plan + "--json /dev/stdout").out);
  EXPECT_THAT(lines.log, HasSubstr("predicted peak"));
  for (const std::string option : {"--trace ", "--schedule ", "--report "}) {
    ASSERT_EQ(run(plan + option + path("file")).status, 0);
    const Outcome outcome = run(plan + option + "-");
    EXPECT_EQ(outcome.status, 0) << outcome.log;
    EXPECT_TRUE(outcome.out == read("file")) << option;
    EXPECT_THAT(outcome.log, HasSubstr("predicted peak")) << option;
  }
  const Outcome two = run(plan + "--json - --trace -");
  EXPECT_EQ(two.status, 2);
  EXPECT_THAT(two.log, HasSubstr("two outputs"));
  EXPECT_EQ(last_line(run(kTrain + "--json -").out)["type"], "summary");
}

// Regression: a trace through standard output truncated the file to which the shell appended.
TEST_F(CliTest, WhatStandardOutputLeadsToKeepsWhatItHas) {
  write("log", "before\n");
  ASSERT_EQ(run("plan --model lenet --batch 8 --trace /dev/stdout >>" + path("log")).status, 0);
  EXPECT_TRUE(read("log").starts_with("before\n{")) << read("log").substr(0, 40);
}

TEST_F(CliTest, AReportMayHaveStandardOutputToItself) {
  const Outcome outcome = run("plan --model lenet --batch 8 --report /dev/stdout");
  ASSERT_EQ(outcome.status, 0) << outcome.log;
  EXPECT_TRUE(outcome.out.starts_with("<!DOCTYPE html>"));
  EXPECT_THAT(outcome.log, HasSubstr("predicted peak"));
  EXPECT_EQ(data_of(outcome.out)["figures"]["model"], "lenet");
}

// Both outputs use the same prediction.
TEST_F(CliTest, AReportLeavesTheTraceAsItIs) {
  ASSERT_EQ(run("plan --model lenet --batch 8 --trace " + path("alone.json")).status, 0);
  ASSERT_EQ(
      run("plan --model lenet --batch 8 --trace " + path("both.json") + " --report " + path("report.html"))
          .status,
      0);
  EXPECT_TRUE(read("alone.json") == read("both.json"));
}

TEST_F(CliTest, TrainObeysTheSchemaAndAgreesWithPlan) {
  const Outcome outcome = run(kTrain + "--policy conv --threads 1 --json " + path("run.json"));
  ASSERT_EQ(outcome.status, 0) << outcome.log;
  const json trained = last_line(read("run.json"));
  expect_obeys_schema(trained);
  const json planned = plan("--model lenet --batch 8 --policy conv --threads 1");
  EXPECT_EQ(trained["predicted_peak_bytes"], planned["peak_bytes"]);
  EXPECT_EQ(trained["peak_bytes"], planned["peak_bytes"]);
  for (const char* key : {"smallest_budget_bytes", "baseline_peak_bytes", "paper_baseline_bytes",
                          "feature_map_bytes", "weight_bytes", "workspace_bytes", "offload_bytes_per_step",
                          "host_bytes", "average_bytes", "algorithms_source"}) {
    EXPECT_EQ(trained[key], planned[key]) << key;
  }
  EXPECT_EQ(trained["system_allocations_after_first_step"], 0);
}

TEST_F(CliTest, EveryLineOfATrainingObeysASchema) {
  ASSERT_EQ(run(kTrain + "--optimizer adamw --clip-norm 1 --augment --save " + path("checkpoint") +
                " --json " + path("run.json"))
                .status,
            0);
  std::istringstream lines(read("run.json"));
  std::vector<std::string> types;
  for (std::string line; std::getline(lines, line);) {
    const json object = json::parse(line);
    expect_obeys_schema(object);
    types.push_back(object["type"]);
  }
  EXPECT_THAT(types, ::testing::ElementsAre("step", "step", "summary"));
}

TEST_F(CliTest, TheSummaryEchoesTheConfigurationInForce) {
  const json adam = train(
      "--model lenet --batch 4 --data synthetic --steps 2 --threads 1 --optimizer adam "
      "--beta2 0.99 --clip-norm 2 --augment --lr 0.05 --lr-schedule cosine,warmup:1 --save " +
      path("checkpoint"))["options"];
  const json expected{{"input", "1x28x28"},
                      {"classes", 10},
                      {"batch", 4},
                      {"device", "cpu"},
                      {"threads", 1},
                      {"policy", "none"},
                      {"optimizer", "adam"},
                      {"momentum", nullptr},
                      {"beta1", 0.9},
                      {"beta2", 0.99},
                      {"epsilon", 1e-8},
                      {"clip_norm", 2.0},
                      {"augment", true},
                      {"crop_padding", 4},
                      {"lr", 0.05},
                      {"lr_schedule", "cosine,warmup:1"},
                      {"data", "synthetic"},
                      {"steps", 2},
                      {"epochs", nullptr},
                      {"seed", 1},
                      {"save", path("checkpoint")},
                      {"resume", nullptr}};
  for (const auto& [key, value] : expected.items()) {
    EXPECT_EQ(adam[key], value) << key;
  }
  const json sgd = plan("--model lenet --momentum 0.5 --input 1x32x32 --classes 7")["options"];
  EXPECT_EQ(sgd["momentum"], 0.5);
  EXPECT_EQ(sgd["beta1"], nullptr);
  EXPECT_EQ(sgd["input"], "1x32x32");
  EXPECT_EQ(sgd["classes"], 7);
}

TEST_F(CliTest, PlanCountsWhatGraphsTake) {
  const std::string arguments = "--model lenet --batch 4 --device sim:h200 ";
  const json without = plan(arguments);
  const json with = plan(arguments + "--graph");
  expect_obeys_schema(with);
  EXPECT_EQ(with["options"]["graph"], true);
  EXPECT_GT(with["average_bytes"], without["average_bytes"]);
  EXPECT_GT(with["host_bytes"], without["host_bytes"]);
}

TEST_F(CliTest, HelpListsTheZoo) {
  const Outcome outcome = run("train --help");
  EXPECT_EQ(outcome.status, 0);
  for (const std::string& name : model_names()) {
    EXPECT_THAT(outcome.out, HasSubstr(name));
  }
}

// Regression: CLI11 read 010 as eight, 0x10 as sixteen and -1 as the largest seed.
TEST_F(CliTest, WholeNumbersAreDecimal) {
  EXPECT_EQ(plan("--model lenet --batch 010")["batch"], 10);
  EXPECT_EQ(plan("--model lenet --seed 0018446744073709551615")["seed"], 18446744073709551615U);
  for (const std::string value : {"0x10", "-1", "1e2", "18446744073709551616", "1.5", "''"}) {
    const Outcome outcome = run("plan --model lenet --seed " + value);
    EXPECT_EQ(outcome.status, 2) << value;
    EXPECT_THAT(outcome.log, HasSubstr("--seed")) << value;
  }
}

// --- checkpoints -------------------------------------------------------------------------------------------

const std::string kLonger =
    "--model lenet --batch 8 --data synthetic --threads 1 --optimizer adam --clip-norm 1 --augment "
    "--lr-schedule step:3:0.5,warmup:2 --seed 7 ";

TEST_F(CliTest, ATrainingThatWasInterruptedEndsWithTheSameWeights) {
  const std::string checkpoint = path("checkpoint");
  const json whole = train(kLonger + "--steps 8");
  train(kLonger + "--steps 5 --save " + checkpoint);
  // Seed and algorithms come from the checkpoint. The run may replace the file that it resumes from.
  std::string without_seed = kLonger;
  without_seed.erase(without_seed.find("--seed"));
  const json resumed = train(without_seed + "--steps 8 --policy all --algorithms memory --resume " +
                             checkpoint + " --save-every 2 --save " + checkpoint);
  EXPECT_EQ(resumed["weights_sha256"], whole["weights_sha256"]);
  EXPECT_EQ(resumed["loss"], whole["loss"]);
  EXPECT_EQ(resumed["seed"], 7);
  EXPECT_EQ(resumed["options"]["resume"], checkpoint);
  EXPECT_EQ(resumed["peak_bytes"], resumed["predicted_peak_bytes"]);
  EXPECT_EQ(train(kLonger + "--steps 9 --resume " + checkpoint)["weights_sha256"],
            train(kLonger + "--steps 9")["weights_sha256"]);
}

TEST_F(CliTest, PlanSaysWhatAResumedTrainingTakes) {
  const std::string checkpoint = path("checkpoint");
  train(kLonger + "--steps 1 --save " + checkpoint);
  const std::string run_options =
      "--model lenet --batch 8 --threads 1 --optimizer adam --clip-norm 1 --algorithms memory --policy all ";
  const json planned = plan(run_options + "--resume " + checkpoint + " --schedule " + path("schedule.json"));
  const json trained = train(run_options + "--data synthetic --augment --steps 2 --resume " + checkpoint);
  EXPECT_EQ(planned["peak_bytes"], trained["peak_bytes"]);
  EXPECT_EQ(planned["seed"], 7);
  EXPECT_NE(planned["workspace_bytes"], plan(run_options)["workspace_bytes"])
      << "the test needs algorithms that differ from the default choice";
  // The schedule lists its algorithms, so replaying needs no checkpoint.
  std::filesystem::remove(checkpoint);
  const Outcome replayed = run("replay " + path("schedule.json") + " --json " + path("replay.json"));
  ASSERT_EQ(replayed.status, 0) << replayed.log;
  EXPECT_EQ(last_line(read("replay.json"))["peak_bytes"], planned["peak_bytes"]);
  EXPECT_EQ(last_line(read("replay.json"))["workspace_bytes"], planned["workspace_bytes"]);
}

TEST_F(CliTest, WhatDoesNotGoWithACheckpointIsRefused) {
  const std::string checkpoint = path("checkpoint");
  train(kLonger + "--steps 2 --save " + checkpoint);
  const std::string resume = "--resume " + checkpoint;
  const std::string adam = "--optimizer adam --clip-norm 1 ";
  for (const auto& [arguments, message] :
       std::vector<std::pair<std::string, std::string>>{{"--model lenet " + adam + "--seed 8", "seed 7"},
                                                        {"--model lenet", "optimizer"},
                                                        {"--model lenet --optimizer adam", "clipped"},
                                                        {"--model lenet --classes 3 " + adam, "fc2.filter"},
                                                        {"--model fashion-vgg " + adam, "'fashion-vgg'"}}) {
    for (const std::string command : {"plan ", "train --data synthetic --steps 3 "}) {
      const Outcome outcome = run(std::string(command).append(arguments).append(" ").append(resume));
      EXPECT_EQ(outcome.status, 2) << command << arguments << outcome.log;
      EXPECT_THAT(outcome.log, HasSubstr(message));
    }
  }
  const Outcome over = run("train " + kLonger + "--steps 2 " + resume);
  EXPECT_EQ(over.status, 2);
  EXPECT_THAT(over.log, HasSubstr("nothing left"));
  write("other", "no checkpoint");
  EXPECT_EQ(run("plan --model lenet --resume " + path("other")).status, 2);
  EXPECT_EQ(run("plan --model lenet --resume " + path("missing")).status, 2);
}

TEST_F(CliTest, AnotherNumberOfThreadsIsAllowedWithAWarning) {
  train(kLonger + "--steps 1 --save " + path("checkpoint"));
  std::string more = kLonger;
  more.replace(more.find("--threads 1"), 11, "--threads 2");
  const Outcome outcome = run("train " + more + "--steps 2 --resume " + path("checkpoint"));
  EXPECT_EQ(outcome.status, 0) << outcome.log;
  EXPECT_THAT(outcome.log, HasSubstr("threads 1"));
}

// Regression: the run continued on another device without a warning.
TEST_F(CliTest, AnotherDeviceIsAllowedWithAWarning) {
  train(kLonger + "--steps 1 --save " + path("checkpoint"));
  std::string checkpoint = read("checkpoint");
  const std::string device = R"("device":"cpu")";
  ASSERT_NE(checkpoint.find(device), std::string::npos);
  write("checkpoint", checkpoint.replace(checkpoint.find(device), device.size(), R"("device":"gpu")"));
  const Outcome outcome = run("train " + kLonger + "--steps 2 --resume " + path("checkpoint"));
  EXPECT_EQ(outcome.status, 0) << outcome.log;
  EXPECT_THAT(outcome.log, HasSubstr("written with device gpu, and training continues with cpu"));
}

// Regression: paths were compared as text, so an output through a link replaced the checkpoint.
TEST_F(CliTest, NoLinkLeadsAnOutputToACheckpointOrToAnotherOutput) {
  namespace fs = std::filesystem;
  const std::string checkpoint = path("checkpoint");
  train(kLonger + "--steps 1 --save " + checkpoint);
  const std::string before = read("checkpoint");
  fs::create_symlink("checkpoint", path("symbolic"));
  fs::create_hard_link(checkpoint, path("hard"));
  fs::create_directory_symlink(".", path("here"));
  const std::string resume = kLonger + "--steps 2 --resume " + checkpoint;
  for (const std::string link : {"symbolic", "hard", "here/checkpoint"}) {
    const Outcome log = run("train " + resume + " --json " + path(link));
    EXPECT_EQ(log.status, 2) << link;
    EXPECT_THAT(log.log, HasSubstr("also an output"));
    EXPECT_EQ(run("plan --model lenet --resume " + checkpoint + " --schedule " + path(link)).status, 2);
    const Outcome two = run("plan --model lenet --json " + checkpoint + " --trace " + path(link));
    EXPECT_EQ(two.status, 2) << link;
    EXPECT_THAT(two.log, HasSubstr("two outputs"));
    EXPECT_EQ(run("replay " + checkpoint + " --json " + path(link)).status, 2) << link;
    EXPECT_TRUE(read("checkpoint") == before) << link;
  }
  EXPECT_EQ(run("plan --model lenet --json " + path("new") + " --trace " + path("here/new")).status, 2);
  EXPECT_EQ(run("train " + resume + " --save " + path("symbolic")).status, 0);
  EXPECT_EQ(run("plan --model lenet --json /dev/stdout --trace /dev/stderr").status, 0);
}

class DivergedTest : public CliTest {
 protected:
  // At this learning rate, the second step has the last finite loss or the first infinite one.
  std::string diverging(const std::string& more) const {
    return "train --model lenet --batch 8 --data synthetic --threads 1 --lr 1e28 " + more;
  }
  // Saves after three steps at an ordinary learning rate.
  void save_sound_checkpoint() const {
    ASSERT_EQ(run("train --model lenet --batch 8 --data synthetic --threads 1 --steps 3 --save " +
                  path("checkpoint"))
                  .status,
              0);
  }
  static constexpr int kDiverged = 5;
};

// Regression: the training went on and exited with status 0, and its last weights, all NaN, replaced the
// checkpoint.
TEST_F(DivergedTest, EndsWithItsStatusNamesTheStepAndLeavesTheCheckpoint) {
  save_sound_checkpoint();
  const std::string before = read("checkpoint");
  const Outcome outcome =
      run(diverging("--steps 20 --resume " + path("checkpoint") + " --save " + path("checkpoint")));
  EXPECT_EQ(outcome.status, kDiverged);
  EXPECT_THAT(outcome.log, AllOf(HasSubstr("step 5 has diverged: its loss is"), HasSubstr("--find-nan"),
                                 HasSubstr("--allow-nan"), HasSubstr("learning rate of 1e+28")));
  EXPECT_EQ(read("checkpoint"), before);
}

// The images are at most 1, and after the first step the weights are about 1e27. So the first layer's output
// is finite, and the second layer's is not.
TEST_F(DivergedTest, FindsTheFirstValueThatIsNotFinite) {
  const Outcome from_start = run(diverging("--steps 20 --find-nan"));
  EXPECT_EQ(from_start.status, kDiverged);
  EXPECT_THAT(from_start.out, AllOf(HasSubstr("repeating steps 1 to 2"),
                                    HasSubstr("step 2, op conv2.forward: conv2.y (8x50x8x8)")));
  save_sound_checkpoint();
  const Outcome from_checkpoint = run(diverging("--steps 20 --find-nan --resume " + path("checkpoint")));
  EXPECT_EQ(from_checkpoint.status, kDiverged);
  EXPECT_THAT(from_checkpoint.out,
              AllOf(HasSubstr("repeating steps 4 to 5"), HasSubstr("step 5, op conv2.forward: conv2.y")));
  // If the run has saved a checkpoint of its own, it repeats steps from this later one rather than from the
  // one from which it resumed.
  const Outcome from_saved = run(diverging("--steps 20 --find-nan --resume " + path("checkpoint") +
                                           " --save-every 1 --save " + path("own")));
  EXPECT_EQ(from_saved.status, kDiverged);
  EXPECT_THAT(from_saved.out,
              AllOf(HasSubstr("repeating steps 5 to 5"), HasSubstr("step 5, op conv2.forward: conv2.y")));
  EXPECT_THAT(from_saved.log, HasSubstr("the checkpoint of step 4 is kept"));
}

TEST_F(DivergedTest, MayGoOnAndLeavesTheCheckpoint) {
  save_sound_checkpoint();
  const std::string before = read("checkpoint");
  const Outcome outcome = run(diverging("--steps 7 --allow-nan --resume " + path("checkpoint") + " --save " +
                                        path("checkpoint") + " --json " + path("run.json")));
  EXPECT_EQ(outcome.status, 0) << outcome.log;
  EXPECT_THAT(outcome.log, HasSubstr("'" + path("checkpoint") + "' is not written"));
  EXPECT_THAT(outcome.out, ::testing::Not(HasSubstr("checkpoint: ")));
  EXPECT_EQ(read("checkpoint"), before);
  EXPECT_TRUE(last_line(read("run.json"))["loss"].is_null());
}

// Regression: NaN losses counted as correct predictions, and were printed as "-nan".
TEST_F(CliTest, ATrainingThatDivergedSaysSo) {
  const Outcome outcome =
      run("train --model lenet --batch 64 --data synthetic --epochs 1 --lr 1e30 --allow-nan --json " +
          path("run.json"));
  ASSERT_EQ(outcome.status, 0) << outcome.log;
  EXPECT_THAT(outcome.out, HasSubstr("loss nan"));
  EXPECT_THAT(outcome.out, ::testing::Not(HasSubstr("-nan")));
  const json summary = last_line(read("run.json"));
  expect_obeys_schema(summary);
  EXPECT_TRUE(summary["loss"].is_null());
  EXPECT_EQ(summary.value("test_accuracy", 0.0), 0);
}

TEST_F(CliTest, OneGranuleLessThanTheSmallestBudgetDoesNotFitAndSaysWhatWould) {
  constexpr std::uint64_t kGranule = 65536;
  for (const std::string policy : {"baseline", "none", "conv", "all"}) {
    const std::uint64_t smallest =
        plan("--model lenet --batch 8 --policy " + policy)["smallest_budget_bytes"];
    const std::string train = std::string(kTrain).append("--policy ").append(policy).append(" --memory ");
    EXPECT_EQ(run(train + std::to_string(smallest)).status, 0) << policy;
    const Outcome less = run(train + std::to_string(smallest - kGranule));
    EXPECT_EQ(less.status, 3) << policy << less.log;
    EXPECT_THAT(less.log, HasSubstr("(--memory " + exact_size(smallest) + ")"));
    const json planned = plan("--model lenet --batch 8 --policy " + policy + " --memory " +
                              std::to_string(smallest - kGranule));
    EXPECT_EQ(planned["fits"], false);
    EXPECT_EQ(planned["smallest_budget_bytes"], smallest);
  }
}

TEST_F(CliTest, PageLockedMemoryHasABudgetToo) {
  const Outcome outcome = run(kTrain + "--policy all --host-memory 4KiB");
  EXPECT_EQ(outcome.status, 3);
  EXPECT_THAT(outcome.log, HasSubstr("page-locked"));
}

TEST_F(CliTest, AutoIsNoneWhereThatFitsElseOptimal) {
  const auto policy_at = [&](std::uint64_t budget) {
    return plan("--model fashion-vgg --batch 8 --memory " + std::to_string(budget))["policy"];
  };
  const auto smallest = [&](const std::string& policy) -> std::uint64_t {
    return plan("--model fashion-vgg --batch 8 --policy " + policy)["smallest_budget_bytes"];
  };
  ASSERT_LT(smallest("conv"), smallest("none"));
  ASSERT_LE(smallest("optimal"), smallest("conv"));
  EXPECT_EQ(policy_at(smallest("none")), "none");
  EXPECT_EQ(policy_at(smallest("conv")), "optimal");
  EXPECT_EQ(policy_at(smallest("optimal")), "optimal");
}

// With ample memory, `dyn` plans like `none`. With less, it first chooses slower algorithms for some ops, and
// only then for all.
TEST_F(CliTest, DynChoosesByTheBudget) {
  const std::string model = "--model vgg19 --batch 64 --device sim:titan-x --host-memory 16GiB ";
  const json none = plan(model + "--policy none");
  const json all = plan(model + "--policy all --algorithms memory");
  const json ample = plan(model + "--policy dyn");
  EXPECT_EQ(ample["policy"], "dyn");
  EXPECT_EQ(ample["predicted_step_seconds"], none["predicted_step_seconds"]);
  EXPECT_EQ(ample["offload_bytes_per_step"], 0);
  expect_obeys_schema(ample);

  const json tight = plan(model + "--policy dyn --memory 5GiB");
  EXPECT_EQ(tight["fits"], true);
  EXPECT_GT(tight["workspace_bytes"], 0);
  EXPECT_LT(tight["workspace_bytes"], none["workspace_bytes"]);
  EXPECT_GT(tight["predicted_step_seconds"], none["predicted_step_seconds"]);
  EXPECT_LT(tight["predicted_step_seconds"], all["predicted_step_seconds"]);

  const json too_tight = plan(model + "--policy dyn --memory 2GiB");
  EXPECT_EQ(too_tight["fits"], false);
  EXPECT_EQ(too_tight["smallest_budget_bytes"], all["smallest_budget_bytes"]);
}

TEST_F(CliTest, ReproducesAPublicationAsTablesAndAsJson) {
  const Outcome outcome = run("reproduce vdnn2016 --json " + path("tables.json"));
  ASSERT_EQ(outcome.status, 0) << outcome.log;
  EXPECT_THAT(outcome.out, HasSubstr("alexnet(128)"));
  EXPECT_THAT(outcome.out, HasSubstr("simulated"));
  const auto schema = testing::read_json(VDNN_DOCS_DIRECTORY "/reproduction.schema.json");
  std::istringstream lines(read("tables.json"));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_THAT(testing::SchemaCheck::errors(schema, json::parse(line)), ::testing::IsEmpty()) << line;
  }
  EXPECT_EQ(count, 8);
  // With --json on standard output, the tables go to standard error.
  const Outcome piped = run("reproduce vdnn2016 --json /dev/stdout");
  EXPECT_EQ(json::parse(piped.out.substr(0, piped.out.find('\n')))["type"], "network");
  EXPECT_THAT(piped.log, HasSubstr("alexnet(128)"));
}

TEST_F(CliTest, DynTrainsAndItsScheduleIsReplayed) {
  const std::uint64_t conv = plan("--model lenet --batch 8 --policy conv")["smallest_budget_bytes"];
  const std::string memory = " --memory " + std::to_string(conv);
  const auto weights = [&](const std::string& arguments, const std::string& file) {
    const Outcome outcome = run(arguments + " --json " + path(file));
    EXPECT_EQ(outcome.status, 0) << outcome.log;
    return last_line(read(file))["weights_sha256"].get<std::string>();
  };
  const std::string none = weights(kTrain + "--policy none --momentum 0.9 --lr 0.01", "none.json");
  EXPECT_EQ(weights(kTrain + "--policy dyn --momentum 0.9 --lr 0.01" + memory, "dyn.json"), none);
  EXPECT_EQ(last_line(read("dyn.json"))["policy"], "dyn");
  EXPECT_GT(last_line(read("dyn.json"))["offload_bytes_per_step"], 0);

  const std::string schedule = path("schedule.json");
  const Outcome planned =
      run("plan --model lenet --batch 8 --policy dyn" + memory + " --schedule " + schedule);
  ASSERT_EQ(planned.status, 0) << planned.log;
  EXPECT_EQ(weights("replay " + schedule + " --steps 2", "replay.json"), none);
  EXPECT_EQ(last_line(read("replay.json"))["policy"], "dyn");
}

TEST_F(CliTest, SimulatedDevicesPlanAndSayThatTheyAreSimulated) {
  for (const std::string device : {"sim:titan-x", "sim:h200"}) {
    const json summary = plan("--model fashion-vgg --policy all --memory 512GiB --device " + device);
    EXPECT_EQ(summary["device"], device);
    EXPECT_EQ(summary["simulated"], true);
    EXPECT_GT(summary["predicted_step_seconds"], 0);
    EXPECT_LE(summary["lower_bound_step_seconds"], summary["oracle_step_seconds"]);
    EXPECT_LE(summary["oracle_step_seconds"], summary["predicted_step_seconds"]);
    expect_obeys_schema(summary);
  }
}

TEST_F(CliTest, ADeviceMayBeTheUsersOwnFile) {
  json device = testing::read_json(VDNN_DEVICES_DIRECTORY "/titan-x.json");
  const json known = plan("--model lenet --policy all --device sim:titan-x");
  device["name"] = "mine";
  device["launch_seconds"]["value"] = 1;
  std::ofstream(directory_ / "mine.json") << device;
  const json own = plan("--model lenet --policy all --device sim:" + path("mine.json"));
  EXPECT_EQ(own["device"], "sim:mine");
  EXPECT_EQ(own["peak_bytes"], known["peak_bytes"]);
  EXPECT_GT(own["predicted_step_seconds"], 10);
  EXPECT_LT(known["predicted_step_seconds"], 1);
}

TEST_F(CliTest, Tf32IsInTheSummaryAndInTheOriginOfASchedule) {
  const std::string schedule = path("schedule.json");
  const json summary = plan("--model alexnet --device sim:h200 --tf32 --schedule " + schedule);
  expect_obeys_schema(summary);
  EXPECT_EQ(summary["options"]["tf32"], true);
  EXPECT_THAT(summary["algorithms_source"].get<std::string>(), ::testing::EndsWith(", tf32"));
  const Outcome replayed = run("replay " + schedule + " --json " + path("replay.json"));
  ASSERT_EQ(replayed.status, 0) << replayed.log;
  EXPECT_EQ(last_line(read("replay.json"))["options"]["tf32"], true);
}

TEST_F(CliTest, SaysWhatProductsAreComputedIn) {
  const auto products = [&](const std::string& options) {
    const json summary = plan("--model alexnet " + options);
    expect_obeys_schema(summary);
    EXPECT_TRUE(summary["engine_trials"].is_null()) << "no GPU";
    return summary["product_precision"]["convolutions"].get<std::string>() + ", " +
           summary["product_precision"]["matrix_products"].get<std::string>();
  };
  EXPECT_EQ(products("--device sim:a100"), "tf32, fp32");
  EXPECT_EQ(products("--device sim:a100 --tf32"), "tf32, tf32");
  EXPECT_EQ(products("--device sim:a100 --fp32"), "fp32, fp32");
  EXPECT_EQ(products("--device sim:v100-16"), "fp32, fp32");
  const Outcome outcome = run("plan --model alexnet --device sim:a100");
  EXPECT_THAT(outcome.out, HasSubstr("convolutions in tf32, matrix products in fp32"));
}

TEST_F(CliTest, FeatureMapsInANarrowTypeAreReported) {
  const std::string schedule = path("schedule.json");
  const json summary =
      plan("--model alexnet --device sim:h200 --precision bf16 --fp32-layers fc3 --schedule " + schedule);
  expect_obeys_schema(summary);
  EXPECT_EQ(summary["precision"], "bf16");
  EXPECT_EQ(summary["product_precision"]["convolutions"], "bf16");
  EXPECT_EQ(summary["options"]["fp32_layers"], "fc3");
  // All feature maps take half the bytes except the images, which stay fp32 and have a copy in bf16.
  const auto bytes = [](const json& of) { return of["feature_map_bytes"].get<std::uint64_t>(); };
  constexpr std::uint64_t kImages = std::uint64_t{64} * 3 * 224 * 224 * sizeof(float);
  const std::uint64_t maps = bytes(plan("--model alexnet --device sim:h200")) - kImages;
  constexpr std::uint64_t kNarrowImages = kImages / 2;
  EXPECT_NEAR(static_cast<double>(bytes(summary) - kImages - kNarrowImages), 0.5 * static_cast<double>(maps),
              0.01 * static_cast<double>(maps));
  ASSERT_EQ(run("replay " + schedule + " --json " + path("replay.json")).status, 0);
  const json replayed = last_line(read("replay.json"));
  EXPECT_EQ(replayed["precision"], "bf16");
  EXPECT_EQ(replayed["peak_bytes"], summary["peak_bytes"]);
  const Outcome outcome = run("plan --model lenet --device cpu --precision fp16");
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("feature maps in fp16"), HasSubstr("convolutions in fp16")));
}

// Parameters are fp32 in every precision, so a run can resume in another precision; the log reports the
// change.
TEST_F(CliTest, ACheckpointGoesOnInAnotherPrecision) {
  const std::string training = "train --model lenet --data synthetic --device cpu --batch 8 ";
  ASSERT_EQ(run(training + "--steps 2 --precision bf16 --save " + path("model")).status, 0);
  const Outcome outcome =
      run(training + "--steps 3 --resume " + path("model") + " --json " + path("train.json"));
  ASSERT_EQ(outcome.status, 0) << outcome.log;
  EXPECT_THAT(outcome.log, HasSubstr("written with precision bf16, and training continues with fp32"));
  EXPECT_EQ(last_line(read("train.json"))["precision"], "fp32");
  const Outcome same = run(training + "--steps 3 --precision bf16 --resume " + path("model"));
  ASSERT_EQ(same.status, 0) << same.log;
  EXPECT_THAT(same.log, Not(HasSubstr("written with")));
}

// Regression: a tape with measured costs lost its loss scale.
TEST_F(CliTest, Fp16UsesMeasuredCostsAndReplans) {
  const std::string fp16 = "--model lenet --device cpu --batch 2 --precision fp16 ";
  ASSERT_EQ(run("profile " + fp16 + "-o " + path("costs.json")).status, 0);
  const Outcome planned = run("plan " + fp16 + "--profile " + path("costs.json"));
  EXPECT_EQ(planned.status, 0) << planned.log;
  const Outcome trained =
      run("train " + fp16 + "--data synthetic --steps 9 --replan-after 6 --json " + path("train.json"));
  ASSERT_EQ(trained.status, 0) << trained.log;
  EXPECT_GT(last_line(read("train.json"))["loss_scale"], 0);
}

// A step skipped because of an overflow has not diverged.
TEST_F(CliTest, FindNanPassesOverSkippedSteps) {
  const Outcome outcome =
      run("train --model lenet --device cpu --batch 2 --data synthetic --steps 200 --precision fp16 "
          "--loss-scale 1e9 "
          "--lr 1e30 --find-nan");
  EXPECT_EQ(outcome.status, 5) << outcome.log;
  // The first update that is not skipped makes filters too large for fp16.
  EXPECT_THAT(outcome.out + outcome.log, HasSubstr(".filter.update: "));
  EXPECT_THAT(outcome.out + outcome.log, Not(HasSubstr("step 1, op")));
}

TEST_F(CliTest, AResumedTrainingKeepsItsLossScale) {
  const std::string training =
      "train --model lenet --data synthetic --device cpu --batch 2 --precision fp16 ";
  ASSERT_EQ(run(training + "--steps 2 --loss-scale 32 --save " + path("model")).status, 0);
  const Outcome refused = run(training + "--steps 3 --loss-scale 64 --resume " + path("model"));
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.log, HasSubstr("--loss-scale: the checkpoint has a loss scale"));
  ASSERT_EQ(run(training + "--steps 3 --resume " + path("model") + " --json " + path("train.json")).status,
            0);
  EXPECT_EQ(last_line(read("train.json"))["loss_scale"], 32);
}

// Schedules stored before TF32 was the default have no `fp32` in their origin, and their engines compute in
// fp32.
TEST_F(CliTest, ASchedulesPrecisionIsTheOneThatItWasPlannedIn) {
  for (const std::string option : {"", "--fp32"}) {
    ASSERT_EQ(run("plan --model alexnet --device sim:h200 " + option + " --schedule " + path("schedule.json"))
                  .status,
              0);
    json schedule = json::parse(read("schedule.json"));
    EXPECT_EQ(schedule["origin"]["fp32"], option == "--fp32");
    if (option == "--fp32") {
      schedule["origin"].erase("fp32");
      write("schedule.json", schedule.dump());
    }
    const Outcome replayed = run("replay " + path("schedule.json") + " --json " + path("replay.json"));
    ASSERT_EQ(replayed.status, 0) << replayed.log;
    EXPECT_EQ(last_line(read("replay.json"))["product_precision"]["convolutions"],
              option == "--fp32" ? "fp32" : "tf32");
  }
}

TEST_F(CliTest, AStoredScheduleReplaysOnCpuAndOnSim) {
  const std::string schedule = path("schedule.json");
  ASSERT_EQ(run("plan --model lenet --batch 8 --policy all --schedule " + schedule).status, 0);
  const Outcome on_cpu = run("replay " + schedule + " --steps 2 --json " + path("cpu.json"));
  ASSERT_EQ(on_cpu.status, 0) << on_cpu.log;
  const Outcome trained = run(kTrain + "--momentum 0.9 --lr 0.01 --json " + path("train.json"));
  ASSERT_EQ(trained.status, 0) << trained.log;
  // Seed, data and steps are the same, so the replay is the same computation.
  EXPECT_EQ(last_line(read("cpu.json"))["weights_sha256"], last_line(read("train.json"))["weights_sha256"]);
  const Outcome on_sim = run("replay " + schedule + " --device sim:cpu --json " + path("sim.json"));
  ASSERT_EQ(on_sim.status, 0) << on_sim.log;
  EXPECT_EQ(last_line(read("sim.json"))["device"], "sim:cpu");
  expect_obeys_schema(last_line(read("sim.json")));
  // Regression: replay accepted these options and ignored them.
  for (const std::string option : {"--steps", "--lr"}) {
    std::string arguments = "replay " + schedule + " --device sim:cpu ";
    arguments.append(option).append(" 1");
    const Outcome refused = run(arguments);
    EXPECT_EQ(refused.status, 2) << option;
    EXPECT_THAT(refused.log, HasSubstr(option + ": nothing is trained on sim:cpu"));
  }
  const Outcome elsewhere = run("replay " + schedule + " --device sim:titan-x");
  EXPECT_EQ(elsewhere.status, 2) << "other ops, other algorithms";
  EXPECT_THAT(elsewhere.log, HasSubstr("another tape"));
}

// Regression: the schedule stored the profile's name, "sim:mine", which no command can resolve.
TEST_F(CliTest, AScheduleForADeviceFromAFileReplaysWithoutDevice) {
  json device = testing::read_json(VDNN_DEVICES_DIRECTORY "/titan-x.json");
  device["name"] = "mine";
  write("mine.json", device.dump());
  const Outcome planned =
      run("plan --model lenet --policy all --device sim:mine.json --schedule schedule.json --json plan.json",
          "cd " + path("") + " && ");
  ASSERT_EQ(planned.status, 0) << planned.log;
  const Outcome replayed = run("replay " + path("schedule.json") + " --json /dev/stdout", "cd / && ");
  ASSERT_EQ(replayed.status, 0) << replayed.log;
  const json replay = last_line(replayed.out);
  expect_obeys_schema(replay);
  EXPECT_EQ(replay["device"], "sim:mine");
  EXPECT_EQ(replay["predicted_step_seconds"], last_line(read("plan.json"))["predicted_step_seconds"]);

  const Outcome over_it = run("replay " + path("schedule.json") + " --json " + path("mine.json"));
  EXPECT_EQ(over_it.status, 2);
  EXPECT_THAT(over_it.log, HasSubstr("is also an output"));
  EXPECT_EQ(read("mine.json"), device.dump());

  std::filesystem::rename(path("mine.json"), path("moved.json"));
  const Outcome gone = run("replay " + path("schedule.json"));
  EXPECT_EQ(gone.status, 2);
  EXPECT_THAT(gone.log, HasSubstr(path("mine.json") + ", which cannot be read; give its present path with "
                                                      "--device sim:FILE.json"));
  const Outcome found =
      run("replay " + path("schedule.json") + " --device sim:" + path("moved.json") + " --json /dev/stdout");
  ASSERT_EQ(found.status, 0) << found.log;
  EXPECT_EQ(last_line(found.out)["predicted_step_seconds"], replay["predicted_step_seconds"]);
}

TEST_F(CliTest, ADamagedScheduleIsRefused) {
  const std::string schedule = path("schedule.json");
  ASSERT_EQ(run("plan --model lenet --batch 8 --policy all --schedule " + schedule).status, 0);
  const std::string text = read("schedule.json");
  write("truncated.json", text.substr(0, text.size() / 2));
  EXPECT_EQ(run("replay " + path("truncated.json")).status, 2);
  json without_wait = json::parse(text);
  for (json& instruction : without_wait["instructions"]) {
    if (instruction["kind"] == "offload") {
      instruction.erase("waits");
    }
  }
  write("unsafe.json", without_wait.dump());
  const Outcome unsafe = run("replay " + path("unsafe.json"));
  EXPECT_EQ(unsafe.status, 2);
  EXPECT_THAT(unsafe.log, HasSubstr("not ordered after"));
  EXPECT_EQ(run("replay " + path("missing.json")).status, 2);
}

// Regression: the origin lacked an option, and a replay refused its own schedule.
TEST_F(CliTest, EveryOptionThatChangesTheTapeIsInTheOriginOfASchedule) {
  const std::string schedule = path("schedule.json");
  const std::string options =
      "--model lenet --batch 4 --input 1x32x32 --classes 7 --optimizer adamw --beta1 0.8 "
      "--weight-decay 0.1 --clip-norm 0.5 --workspace-limit 64MiB --seed 3 --threads 1 ";
  ASSERT_EQ(run("plan " + options + "--schedule " + schedule).status, 0);
  const Outcome replayed = run("replay " + schedule + " --steps 2 --json " + path("replay.json"));
  ASSERT_EQ(replayed.status, 0) << replayed.log;
  const json replay = last_line(read("replay.json"));
  expect_obeys_schema(replay);
  EXPECT_EQ(replay["weights_sha256"], train(options + "--data synthetic --steps 2")["weights_sha256"]);
}

// --- measured costs ----------------------------------------------------------------------------------------

class ProfileTest : public CliTest {
 protected:
  // Writes the profile that most of these cases use.
  void SetUp() override {
    CliTest::SetUp();
    const Outcome outcome = run("profile " + kProfiled + "--steps 5 -o " + path("costs.json"));
    ASSERT_EQ(outcome.status, 0) << outcome.log;
  }
  std::string with_profile() const { return kProfiled + "--profile " + path("costs.json") + " "; }

  static inline const std::string kProfiled = "--model lenet --batch 8 --device cpu --threads 1 ";
};

TEST_F(ProfileTest, IsWhatTheSchemaSays) {
  const auto schema = testing::read_json(VDNN_DOCS_DIRECTORY "/measured_costs.schema.json");
  const json costs = json::parse(read("costs.json"));
  EXPECT_THAT(testing::SchemaCheck::errors(schema, costs), ::testing::IsEmpty());
  EXPECT_EQ(costs["model"], "lenet");
  EXPECT_EQ(costs["batch"], 8);
  EXPECT_EQ(costs["threads"], 1);
}

// A step copies only the images. With ten times the seconds per op, the rest of the step takes ten times as
// long.
TEST_F(ProfileTest, IsWhatPlansAreMadeWith) {
  const json planned = plan(with_profile());
  expect_obeys_schema(planned);
  EXPECT_EQ(planned["algorithms_source"], "profile " + path("costs.json"));
  EXPECT_EQ(planned["options"]["profile"], path("costs.json"));
  json costs = json::parse(read("costs.json"));
  for (json& op : costs["ops"]) {
    for (json& time : op) {
      time["seconds"] = 10 * time["seconds"].get<double>();
    }
  }
  write("costs.json", costs.dump());
  const json slower = plan(with_profile());
  const auto seconds = [](const json& summary, const char* key) { return summary[key].get<double>(); };
  const auto loading = [&](const json& summary) {
    return seconds(summary, "predicted_step_seconds") - seconds(summary, "lower_bound_step_seconds");
  };
  EXPECT_NEAR(seconds(slower, "lower_bound_step_seconds"), 10 * seconds(planned, "lower_bound_step_seconds"),
              1e-9);
  EXPECT_NEAR(loading(slower), loading(planned), 1e-9);
}

TEST_F(CliTest, AProfileOfASimulatedDeviceIsWhatItPredictsWith) {
  const std::string run_options = "--model alexnet --batch 16 --device sim:h200 ";
  const Outcome outcome = run("profile " + run_options + "-o " + path("model.json"));
  ASSERT_EQ(outcome.status, 0) << outcome.log;
  EXPECT_THAT(outcome.out, HasSubstr("simulated: nothing is measured"));
  const json costs = json::parse(read("model.json"));
  const auto schema = testing::read_json(VDNN_DOCS_DIRECTORY "/measured_costs.schema.json");
  EXPECT_THAT(testing::SchemaCheck::errors(schema, costs), ::testing::IsEmpty());
  EXPECT_EQ(costs["modelled"], true);
  for (const std::string policy : {"--policy all ", "--policy optimal --memory 1536MiB "}) {
    const json planned = plan(run_options + policy);
    const json profiled = plan(run_options + policy + "--profile " + path("model.json"));
    EXPECT_EQ(profiled["algorithms_source"], "profile " + path("model.json"));
    for (const auto& [key, value] : planned.items()) {
      if (key != "algorithms_source" && key != "options") {
        EXPECT_EQ(profiled[key], value) << policy << key;
      }
    }
  }
}

// Regression: predictions did not show whether a device's rates were measured or assumed.
TEST_F(CliTest, SaysWhereTimesFollowFromAssumedRates) {
  const std::string assumed = "times are estimates from assumed or published rates";
  EXPECT_EQ(plan("--model lenet --batch 8 --device cpu")["rates"], "assumed");
  for (const std::string command :
       {"plan --batch 8 ", "max-batch --memory 8MiB ", "max-batch --global-batch 8 ",
        "sweep --batch 8 --points 2 --policy none ", "explain --batch 8 "}) {
    const Outcome outcome = run(command + "--model lenet --device sim:titan-x --json " + path("lines.json"));
    ASSERT_EQ(outcome.status, 0) << command << outcome.log;
    EXPECT_THAT(outcome.out, HasSubstr(assumed)) << command;
    EXPECT_EQ(last_line(read("lines.json"))["rates"], "assumed") << command;
  }
}

TEST_F(ProfileTest, SaysThatRatesAreMeasured) {
  const Outcome outcome = run("plan " + with_profile() + "--json " + path("plan.json"));
  ASSERT_EQ(outcome.status, 0) << outcome.log;
  EXPECT_THAT(outcome.out, ::testing::Not(HasSubstr("estimates")));
  EXPECT_EQ(last_line(read("plan.json"))["rates"], "measured");
  const Outcome swept =
      run("sweep " + with_profile() + "--points 2 --policy none --json " + path("sweep.json"));
  ASSERT_EQ(swept.status, 0) << swept.log;
  EXPECT_EQ(json::parse(read("sweep.json").substr(0, read("sweep.json").find('\n')))["rates"], "measured");
}

class ReplanTest : public CliTest {
 protected:
  // On this slow link, copies that `optimal` expected to hide no longer pay.
  static inline const std::string kRun =
      "--model lenet --batch 8 --device cpu --threads 1 --seed 3 --policy optimal --memory 5632KiB ";
  static inline const std::string kSlow = "--data synthetic --steps 16 --link-gbytes-per-s 0.01 ";

  std::vector<json> lines(const std::string& type) const {
    std::vector<json> found;
    std::istringstream text(read("train.json"));
    for (std::string line; std::getline(text, line);) {
      const json object = json::parse(line);
      expect_obeys_schema(object);
      if (object["type"] == type) {
        found.push_back(object);
      }
    }
    return found;
  }
};

TEST_F(ReplanTest, SaysWhatWasExpectedMeasuredAndChangedAndKeepsTheBits) {
  const json usual = train(kRun + kSlow);
  const Outcome outcome = run("train --json " + path("train.json") + " " + kRun + kSlow +
                              "--replan-every 6 --learned " + path("learned.json"));
  ASSERT_EQ(outcome.status, 0) << outcome.log;
  EXPECT_THAT(outcome.out, HasSubstr("after step 6, 5 steps measured: "));
  EXPECT_THAT(outcome.out, HasSubstr("after step 12, 5 steps measured: "));
  EXPECT_THAT(outcome.out, HasSubstr("learned: " + path("learned.json")));
  const std::vector<json> replans = lines("replan");
  ASSERT_EQ(replans.size(), 2U);
  EXPECT_EQ(replans[0]["step"], 6);
  EXPECT_EQ(replans[1]["step"], 12);
  // On a slow CPU, the link may be fast enough for the plan. ReplanningOptimal.PlansForTheLinkThatThereIs
  // checks with fixed costs that a slow link changes the plan.
  EXPECT_THAT(replans[0]["outcome"], AnyOf("replanned", "kept"));
  for (const json& replan : replans) {
    EXPECT_FALSE(replan["algorithms_changed"].get<bool>());
    EXPECT_EQ(replan["before"]["committed_bytes"], replan["before"]["predicted_peak_bytes"]);
    EXPECT_EQ(replan["after"]["committed_bytes"], replan["after"]["predicted_peak_bytes"]);
    const auto after = replan["after"]["predicted_step_seconds"].get<double>();
    const auto before = replan["before"]["corrected_step_seconds"].get<double>();
    if (replan["outcome"] == "replanned") {
      EXPECT_LT(after, before) << replan;
    } else {
      EXPECT_EQ(after, before) << replan;
    }
  }
  EXPECT_EQ(replans[1]["before"]["expected_step_seconds"], replans[0]["after"]["predicted_step_seconds"]);
  const json summary = last_line(read("train.json"));
  EXPECT_EQ(summary["weights_sha256"], usual["weights_sha256"]);
  EXPECT_EQ(summary["peak_bytes"], summary["predicted_peak_bytes"]);
  EXPECT_EQ(summary["system_allocations_after_first_step"], 0);
  const json planned = plan(kRun + "--profile " + path("learned.json"));
  EXPECT_EQ(planned["algorithms_source"], "profile " + path("learned.json"));
}

TEST_F(ReplanTest, ACheckpointBehindItIsGoneOnFrom) {
  const json whole = train(kRun + kSlow);
  train(kRun + "--data synthetic --steps 9 --replan-after 6 --save " + path("part"));
  const json resumed = train(kRun + kSlow + "--replan-after 6 --resume " + path("part"));
  EXPECT_EQ(resumed["weights_sha256"], whole["weights_sha256"]);
  ASSERT_EQ(lines("replan").size(), 1U);
  EXPECT_EQ(lines("replan")[0]["step"], 15) << "nine steps of the first run, and six of this one";
  EXPECT_THAT(lines("replan")[0]["outcome"], AnyOf("replanned", "kept"));
}

// Learned costs and a checkpoint may replace the files from which the run started.
TEST_F(ReplanTest, MayReplaceWhatItBeganWith) {
  train(kRun + "--data synthetic --steps 7 --learned " + path("costs") + " --save " + path("checkpoint"));
  train(kRun + "--data synthetic --steps 14 --profile " + path("costs") + " --learned " + path("costs") +
        " --resume " + path("checkpoint") + " --save " + path("checkpoint"));
  EXPECT_EQ(plan("--resume " + path("checkpoint") + " " + kRun + "--profile " + path("costs"))["type"],
            "summary");
}

TEST_F(ReplanTest, SaysSoWhereNoStepWasTimed) {
  const Outcome outcome = run("train --json " + path("train.json") + " " + kRun + kSlow +
                              "--replan-after 6 --save-every 1 --save " + path("checkpoint"));
  ASSERT_EQ(outcome.status, 0) << outcome.log;
  EXPECT_THAT(outcome.out, HasSubstr("before: step not measured, expected"));
  ASSERT_EQ(lines("replan").size(), 1U);
  EXPECT_TRUE(lines("replan")[0]["before"]["step_seconds"].is_null());
}

TEST_F(ProfileTest, ChangesNoResultsWhereTheAlgorithmsAreTheSame) {
  const std::string training = "--data synthetic --steps 3 ";
  const json whole = train(with_profile() + training + "--save " + path("whole"));
  expect_obeys_schema(whole);
  EXPECT_EQ(whole["algorithms_source"], "profile " + path("costs.json"));
  // A checkpoint records the algorithms and their library. So training resumes without the profile and
  // without a warning.
  train(with_profile() + "--data synthetic --steps 2 --save " + path("part"));
  const Outcome resumed =
      run("train " + kProfiled + training + "--resume " + path("part") + " --json " + path("resumed.json"));
  ASSERT_EQ(resumed.status, 0) << resumed.log;
  EXPECT_EQ(last_line(read("resumed.json"))["weights_sha256"], whole["weights_sha256"]);
  EXPECT_THAT(resumed.log, ::testing::Not(HasSubstr("the results differ from those")));
}

TEST_F(ProfileTest, IsNotNeededToReplayAScheduleThatWasMadeWithIt) {
  ASSERT_EQ(run("plan " + with_profile() + "--schedule " + path("schedule.json")).status, 0);
  const json trained = train(with_profile() + "--data synthetic --steps 2");
  std::filesystem::remove(path("costs.json"));
  const Outcome replayed =
      run("replay " + path("schedule.json") + " --steps 2 --json " + path("replay.json"));
  ASSERT_EQ(replayed.status, 0) << replayed.log;
  EXPECT_EQ(last_line(read("replay.json"))["weights_sha256"], trained["weights_sha256"]);
}

TEST_F(ProfileTest, OfAnotherRunIsRefusedByTheNameOfTheKey) {
  const auto expect_refused = [&](const std::string& arguments, const std::string& key) {
    const Outcome outcome = run("plan " + arguments + " --profile " + path("costs.json"));
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_THAT(outcome.log, HasSubstr("'" + key + "'")) << arguments;
  };
  const std::string here = "--device cpu --threads 1 ";
  expect_refused(here + "--model lenet --batch 9", "batch");
  expect_refused(here + "--model fashion-vgg --batch 8", "model");
  expect_refused(kProfiled + "--classes 7", "classes");
  expect_refused(kProfiled + "--input 1x32x32", "input");
  expect_refused(kProfiled + "--optimizer adam", "persistent_bytes");
  expect_refused("--model lenet --batch 8 --device cpu --threads 2", "threads");
  expect_refused("--model lenet --batch 8 --device sim:h100 --threads 1", "device");
}

TEST_F(ProfileTest, IsNoOutput) {
  const Outcome outcome = run("plan " + with_profile() + "--json " + path("costs.json"));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.log, HasSubstr("is also an output"));
}

// --- several devices, simulated ----------------------------------------------------------------------------

TEST_F(CliTest, PlanSaysWhatDevicesAndMachinesComeTo) {
  const Outcome outcome =
      run("plan --model alexnet --batch 16 --device sim:v100-16 --policy none --devices 4 --machines 2 "
          "--accumulate 3 --json " +
          path("plan.json") + " --report " + path("plan.html") + " --trace " + path("trace.json"));
  ASSERT_EQ(outcome.status, 0) << outcome.log;
  EXPECT_THAT(outcome.out, HasSubstr("global batch 384: 16 x 4 devices x 2 machines x 3 batches per update"));
  EXPECT_THAT(outcome.out, HasSubstr("simulated"));
  EXPECT_THAT(outcome.out, HasSubstr("not hidden"));
  const json plan = json::parse(read("plan.json"));
  expect_obeys_schema(plan);
  EXPECT_EQ(plan["devices"], 4);
  EXPECT_EQ(plan["machines"], 2);
  EXPECT_EQ(plan["global_batch"], 384);
  const double update = plan["predicted_update_seconds"];
  EXPECT_NEAR(
      update,
      plan["predicted_step_seconds"].get<double>() + 2 * plan["predicted_micro_step_seconds"].get<double>(),
      1e-12);
  EXPECT_NEAR(plan["predicted_images_per_second"].get<double>() * update, 384, 1e-6);
  EXPECT_GT(plan["predicted_reduce_seconds"], plan["predicted_exposed_reduce_seconds"]);
  EXPECT_LT(plan["predicted_efficiency"], 1);
  EXPECT_EQ(plan["options"]["network_gbytes_per_s"], 12.5);
  EXPECT_THAT(read("plan.html"), HasSubstr("height:20%\">reduce</div>"));
  EXPECT_THAT(read("trace.json"), HasSubstr("gradients.reduce0"));
}

// --- what does not fit -------------------------------------------------------------------------------------

// A run that follows a suggested way out fits.
TEST_F(CliTest, PlanAndTrainSayWhatWouldFit) {
  const std::string where = "--model lenet --device cpu --threads 1 --policy none --memory 9MiB";
  const Outcome planned = run("plan " + where + " --batch 64");
  EXPECT_EQ(planned.status, 3);
  EXPECT_THAT(planned.out, HasSubstr("does not fit: predicted peak")) << "the plan is printed all the same";
  EXPECT_THAT(planned.log, HasSubstr("policy none on cpu needs "));
  EXPECT_THAT(planned.log, HasSubstr(" more than --memory 9MiB: smallest budget "));
  const Outcome trained = run("train " + where + " --batch 64 --data synthetic --steps 1");
  EXPECT_EQ(trained.status, 3);
  const auto ways_out = [](const Outcome& outcome) {
    const std::size_t begin = outcome.log.find(": smallest budget ");
    return begin == std::string::npos ? "none" : outcome.log.substr(begin);
  };
  EXPECT_EQ(ways_out(trained), ways_out(planned));
  for (const char* const option : {"--memory ", "--batch ", "--batch 32 --accumulate ", "--policy "}) {
    const std::string text = ways_out(planned);
    const std::size_t begin = text.find(option);
    ASSERT_NE(begin, std::string::npos) << text;
    const std::string way =
        text.substr(begin, std::min(text.find(" fits", begin), text.find(')', begin)) - begin);
    const std::string batch = way.starts_with("--batch") ? "" : " --batch 64";
    std::string changed = where;
    if (!way.starts_with("--batch")) {  // the way out replaces the given option
      const std::size_t given = changed.find(option);
      changed.erase(given, changed.find(" --", given + 1) - given);
    }
    changed.append(" ").append(way).append(batch);
    EXPECT_EQ(run("plan " + changed).status, 0) << way;
  }
}

TEST_F(CliTest, PlanSaysThatPageLockedMemoryIsShort) {
  const Outcome outcome =
      run("plan --model vgg16 --batch 64 --device sim:titan-x --policy all --host-memory 64MiB");
  EXPECT_EQ(outcome.status, 3);
  EXPECT_THAT(outcome.log, HasSubstr(" more page-locked memory than --host-memory 64MiB: this plan needs "));
  EXPECT_THAT(outcome.log, HasSubstr(" (--host-memory "));
}

TEST_F(CliTest, EachOfSeveralDevicesIsShortOfItsOwnBudget) {
  for (const std::string device : {"cpu", "sim:v100-16"}) {
    const Outcome planned =
        run("plan --model lenet --batch 64 --threads 1 --policy none --memory 13MiB --devices 2 --device " +
            device);
    EXPECT_EQ(planned.status, 3) << device;
    EXPECT_THAT(planned.log, HasSubstr("policy none on " + device + " needs "));
    EXPECT_THAT(planned.log, HasSubstr(" more than --memory 13MiB: smallest budget "));
    EXPECT_THAT(planned.log, HasSubstr("; --batch "));
    EXPECT_THAT(planned.log, HasSubstr("; --policy optimal fits with a step of "));
  }
}

// A schedule is fixed, so another batch or policy is no way out. Regression: the message named fields of the
// library, and replays on simulated devices exited with 0.
TEST_F(CliTest, AReplayThatDoesNotFitSaysWhatItNeeds) {
  const std::string schedule = path("schedule.json");
  const Outcome planned =
      run("plan --model lenet --batch 8 --policy all --threads 1 --json /dev/stdout --schedule " + schedule);
  ASSERT_EQ(planned.status, 0) << planned.log;
  const std::uint64_t smallest = last_line(planned.out)["smallest_budget_bytes"];
  for (const std::string device : {"cpu", "sim:cpu"}) {
    std::string replay = "replay " + schedule;
    replay.append(" --device ").append(device).append(" --memory ");
    const Outcome less = run(replay + "1MiB");
    EXPECT_EQ(less.status, 3) << device;
    EXPECT_THAT(less.log, HasSubstr(" more than --memory 1MiB: smallest budget "));
    EXPECT_THAT(less.log, HasSubstr("(--memory " + exact_size(smallest) + ")"));
    EXPECT_THAT(less.log, ::testing::Not(AnyOf(HasSubstr("--batch"), HasSubstr("--policy"))));
    EXPECT_EQ(run(replay + exact_size(smallest)).status, 0) << device;
  }
}

// Regression: the sweep exited with 0 although nothing fitted.
TEST_F(CliTest, ASweepInWhichNothingFitsSaysWhatWould) {
  const std::string where = "sweep --model lenet --batch 64 --device sim:titan-x --points 2 ";
  const Outcome less = run(where + "--policy none,all --from 2MiB --to 4MiB");
  EXPECT_EQ(less.status, 3);
  EXPECT_THAT(less.out, HasSubstr("policy all: does not fit any of these budgets"))
      << "all lines are printed";
  EXPECT_THAT(less.log, HasSubstr("no policy fits: 'none' needs "));
  EXPECT_THAT(less.log, HasSubstr(" more than --to 4MiB; "));
  const std::uint64_t smallest =
      plan("--model lenet --batch 64 --device sim:titan-x --policy all")["smallest_budget_bytes"];
  EXPECT_THAT(less.log, HasSubstr("(--to " + exact_size(smallest) + ")"));
  EXPECT_EQ(run(where + "--policy none,all --from 2MiB --to " + exact_size(smallest)).status, 0);
  const Outcome host = run(where + "--policy all --host-memory 64KiB");
  EXPECT_EQ(host.status, 3);
  EXPECT_THAT(host.log, HasSubstr(" more page-locked memory than --host-memory 64KiB"));
}

// --- kept algorithms ---------------------------------------------------------------------------------------

class KeptAlgorithms : public CliTest {
 protected:
  static constexpr const char* kOther = "results differ in bits from those of policy none: ";

  // The smallest budget of `optimal` with these flags.
  std::string tight(const std::string& where, const std::string& flag = "") const {
    return exact_size(plan(where + " --policy optimal" + flag)["smallest_budget_bytes"]);
  }
  // The processor decides which algorithms `cpu` has. On some processors, the other algorithms need no less
  // memory.
  bool needs_others_on_cpu() const { return tight(kOnCpu) != tight(kOnCpu, " --keep-algorithms"); }

  static constexpr const char* kOnCpu = "--model fashion-vgg --batch 8 --threads 1";
};

TEST_F(KeptAlgorithms, HaveTheBitsOfNoneInATightBudget) {
  const std::string where = kOnCpu;
  const std::string steps = where + " --data synthetic --steps 2";
  const std::string budget =
      exact_size(plan(where + " --policy optimal --keep-algorithms")["smallest_budget_bytes"]);
  const json none = train(steps + " --policy none");
  ASSERT_LT(parse_size(budget), none["smallest_budget_bytes"]);
  for (const std::string policy : {"optimal", "dyn", "auto"}) {
    SCOPED_TRACE(policy);
    std::string arguments = "train " + steps;
    arguments.append(" --policy ").append(policy).append(" --keep-algorithms --memory ");
    arguments.append(policy == "dyn" ? none["smallest_budget_bytes"].dump() : budget);
    const Outcome kept = run(arguments + " --json " + path("kept.json"));
    ASSERT_EQ(kept.status, 0) << kept.log;
    EXPECT_THAT(kept.out, ::testing::Not(HasSubstr(kOther)));
    const json summary = last_line(read("kept.json"));
    expect_obeys_schema(summary);
    EXPECT_EQ(summary["options"]["keep_algorithms"], true);
    EXPECT_EQ(summary["weights_sha256"], none["weights_sha256"]);
  }
}

TEST_F(KeptAlgorithms, WhereTheyAreNotPlanAndTrainSaySo) {
  if (!needs_others_on_cpu()) {
    GTEST_SKIP() << "on this processor, other algorithms need no less memory";
  }
  const std::string where = kOnCpu;
  const std::string budget = " --policy optimal --memory " + tight(where);
  const auto said = AllOf(HasSubstr(kOther), HasSubstr("); --keep-algorithms keeps those of policy none\n"));
  EXPECT_THAT(run("plan " + where + budget).out, said);
  EXPECT_THAT(run("train " + where + budget + " --data synthetic --steps 1").out, said);
  EXPECT_THAT(run("plan " + where + " --policy optimal").out, ::testing::Not(HasSubstr(kOther)))
      << "with ample memory the algorithms are the same";
}

TEST_F(KeptAlgorithms, AreKeptOnSimulatedDevices) {
  const std::string where = "--model alexnet --batch 128 --device sim:titan-x";
  const std::string kept = " --policy optimal --keep-algorithms";
  const std::string budget = " --memory " + exact_size(plan(where + kept)["smallest_budget_bytes"]);
  std::string out;
  const auto algorithms = [&](const std::string& arguments) {
    const Outcome outcome = run("plan " + where + arguments + " --schedule " + path("schedule.json"));
    EXPECT_EQ(outcome.status, 0) << outcome.log;
    out = outcome.out;
    return json::parse(read("schedule.json"))["algorithms"];
  };
  const json none = algorithms(" --policy none");
  EXPECT_EQ(algorithms(budget + kept), none);
  EXPECT_THAT(out, ::testing::Not(HasSubstr(kOther)));
  EXPECT_NE(algorithms(" --policy optimal --memory " + tight(where)), none);
  EXPECT_THAT(out, HasSubstr(" ops have other algorithms ("));
  EXPECT_THAT(out, HasSubstr(" more); --keep-algorithms keeps those of policy none\n"));
}

TEST_F(KeptAlgorithms, ThatDoNotFitMayBeGivenUp) {
  const std::string where = "--model alexnet --batch 128 --device sim:titan-x";
  const std::string budget = " --memory " + tight(where);
  const Outcome kept = run("plan " + where + budget + " --policy optimal --keep-algorithms");
  EXPECT_EQ(kept.status, 3);
  const std::uint64_t smallest = plan(where + " --policy optimal --keep-algorithms")["smallest_budget_bytes"];
  EXPECT_THAT(kept.log, HasSubstr("(--memory " + exact_size(smallest) + ")"));
  EXPECT_THAT(kept.log, HasSubstr("; without --keep-algorithms, --policy optimal fits with a step of "));
  EXPECT_EQ(run("plan " + where + budget + " --policy optimal").status, 0);
}

// --- output that is followed -------------------------------------------------------------------------------

class Followed : public CliTest {
 protected:
  static constexpr int kSteps = 3000;
  static constexpr int kLeastOfLine = 50;  // bytes of JSON

  // The log when the run has written `lines` lines of JSON. The run is then still going: all its lines
  // together need more space than the pipe has, and nobody reads further.
  std::string log_after(std::ptrdiff_t lines, const std::string& option) const {
    const std::string pipe = path("pipe");
    EXPECT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
    const int size = ::fcntl(reader, F_SETPIPE_SZ, 4096);  // the kernel rounds up to a page
    EXPECT_TRUE(size > 0 && size < kSteps * kLeastOfLine);
    testing::Command command({VDNN_COMMAND, "train", "--model=lenet", "--batch=1", "--data=synthetic",
                              "--steps=" + std::to_string(kSteps), "--threads=1", "--json=" + pipe, option},
                             path("log"));
    std::string text;
    while (std::ranges::count(text, '\n') < lines && command.running()) {
      pollfd ready{.fd = reader, .events = POLLIN, .revents = 0};
      ::poll(&ready, 1, 100);  // polls again while the command runs
      char each = 0;
      while (std::ranges::count(text, '\n') < lines && ::read(reader, &each, 1) == 1) {
        text += each;
      }
    }
    EXPECT_TRUE(command.running());
    std::string log = read("log");
    ::close(reader);
    return log;
  }
};

// Regression: if the log was a file, its large buffer kept the header back until the run had ended.
TEST_F(Followed, TheHeaderIsThereWhileTheRunGoesOn) {
  const std::string log = log_after(1, "--progress-every=0");
  EXPECT_THAT(log, ::testing::AllOf(HasSubstr("lenet, batch 1, on cpu"), HasSubstr("policy none"),
                                    HasSubstr(", budget "), HasSubstr("trains for 3000 steps;")));
  EXPECT_THAT(log, ::testing::Not(HasSubstr("step 1/")));
}

// The log has a step's line before --json has the next step's.
TEST_F(Followed, EachStepHasALineWhereAsManyAreAskedFor) {
  const std::string log = log_after(3, "--progress-every=1e-9");
  for (const std::string step : {"step 1/3000", "step 2/3000"}) {
    EXPECT_THAT(log, HasSubstr("epoch 1/1  " + step + "  loss "));
  }
  EXPECT_THAT(log, HasSubstr("  ETA "));
}

// --- the largest batch -------------------------------------------------------------------------------------

TEST_F(CliTest, MaxBatchSaysWhatRunsAndOneSampleMoreIsRefused) {
  for (const std::string policy : {"auto", "none", "conv", "all"}) {
    SCOPED_TRACE(policy);
    const std::string where = "--model lenet --device cpu --threads 1 --memory 10MiB --policy " + policy;
    const Outcome outcome = run("max-batch " + where + " --json " + path("max.json"));
    ASSERT_EQ(outcome.status, 0) << outcome.log;
    std::istringstream lines(read("max.json"));
    std::vector<json> tried;
    for (std::string line; std::getline(lines, line);) {
      tried.push_back(json::parse(line));
      expect_obeys_schema(tried.back());
    }
    EXPECT_THAT(outcome.out, HasSubstr("the most that fits"));
    const auto largest = tried.back()["batch"].get<std::int64_t>();
    EXPECT_GT(largest, 1);
    EXPECT_EQ(tried.back()["options"]["batch"], largest);
    EXPECT_EQ(tried.back()["options"]["engine_trial_seconds"], 0) << "not null, the default of other devices";
    EXPECT_THAT(outcome.out, HasSubstr("largest batch: " + std::to_string(largest) + "\n"));
    for (const json& line : tried) {
      if (line["type"] == "batch") {
        EXPECT_TRUE(line["fits"]) << line;
        EXPECT_LE(line["batch"], largest) << line;
      }
    }
    const auto train_with = [&](std::int64_t batch) {
      return run("train " + where + " --data synthetic --steps 1 --batch " + std::to_string(batch)).status;
    };
    EXPECT_EQ(train_with(largest), 0);
    EXPECT_EQ(train_with(largest + 1), 3);
  }
}

// Each row has the figures that `plan` prints with the arguments below the table.
TEST_F(CliTest, MaxBatchPrintsWhatPlanReproduces) {
  const Outcome outcome =
      run("max-batch --model alexnet --device sim:titan-x --memory 2GiB --optimizer adam --json " +
          path("rows.json"));
  ASSERT_EQ(outcome.status, 0) << outcome.log;
  std::istringstream written(read("rows.json"));
  std::vector<json> rows;
  for (std::string line; std::getline(written, line);) {
    if (const json each = json::parse(line); each["type"] == "largest_batch") {
      rows.push_back(each);
    }
  }
  std::istringstream printed(outcome.out);
  std::size_t compared = 0;
  for (std::string line; std::getline(printed, line);) {
    if (!line.starts_with("vdnn plan ")) {
      continue;
    }
    EXPECT_THAT(line, HasSubstr(" --optimizer adam"));
    const json planned = plan(line.substr(std::string("vdnn plan ").size()));
    const json& row = rows.at(compared++);
    for (const char* const key : {"batch", "policy", "peak_bytes", "host_bytes", "predicted_step_seconds",
                                  "predicted_images_per_second"}) {
      EXPECT_EQ(planned[key], row[key]) << line << ": " << key;
    }
  }
  EXPECT_EQ(compared, 3U);
  EXPECT_EQ(rows.size(), 3U);
}

TEST_F(CliTest, MaxBatchSaysInHowLittleMemoryARateIsReached) {
  const Outcome outcome = run(
      "max-batch --model alexnet --device sim:titan-x --images-per-second 1000 --json " + path("rate.json"));
  ASSERT_EQ(outcome.status, 0) << outcome.log;
  const json summary = last_line(read("rate.json"));
  expect_obeys_schema(summary);
  EXPECT_GE(summary["predicted_images_per_second"], 1000);
  EXPECT_THAT(outcome.out,
              HasSubstr("--memory " + std::to_string(summary["budget_bytes"].get<std::uint64_t>())));
}

// `plan` with the suggested options has the requested global batch and fits. With half as many micro-batches
// it does not fit.
TEST_F(CliTest, MaxBatchSharesAGlobalBatchOut) {
  const std::string where =
      "--model lenet --device sim:v100-16 --memory 10MiB --policy none --devices 2 --machines 2";
  const Outcome outcome = run("max-batch " + where + " --global-batch 4096 --json " + path("shared.json"));
  ASSERT_EQ(outcome.status, 0) << outcome.log;
  std::istringstream lines(read("shared.json"));
  json last;
  for (std::string line; std::getline(lines, line);) {
    last = json::parse(line);
    expect_obeys_schema(last);
  }
  const auto batch = last["options"]["batch"].get<std::int64_t>();
  const auto accumulate = last["options"]["accumulate"].get<std::int64_t>();
  EXPECT_EQ(batch * accumulate, 1024);
  EXPECT_GT(accumulate, 1);
  EXPECT_EQ(last["global_batch"], 4096);
  EXPECT_THAT(outcome.out, HasSubstr("--batch " + std::to_string(batch) + " --accumulate " +
                                     std::to_string(accumulate) + "\n"));
  const auto fits = [&](std::int64_t factor) {
    const json planned = plan(where + " --batch " + std::to_string(batch * factor) + " --accumulate " +
                              std::to_string(accumulate / factor));
    EXPECT_EQ(planned["global_batch"], 4096);
    return planned["fits"].get<bool>();
  };
  EXPECT_TRUE(fits(1));
  EXPECT_FALSE(fits(2));
}

TEST_F(CliTest, MaxBatchIsRefusedWhereNothingFits) {
  EXPECT_EQ(run("max-batch --model lenet --device cpu --memory 1MiB").status, 3);
}

// --- what memory buys --------------------------------------------------------------------------------------

TEST_F(CliTest, SweepSaysWhatPlanSaysInEachBudget) {
  const std::string where = "--model resnet20 --batch 64 --device sim:titan-x ";
  const Outcome outcome = run("sweep " + where + "--policy optimal,conv --points 4 --json " +
                              path("sweep.json") + " --svg " + path("sweep.svg"));
  ASSERT_EQ(outcome.status, 0) << outcome.log;
  std::istringstream lines(read("sweep.json"));
  std::vector<json> all;
  for (std::string line; std::getline(lines, line);) {
    all.push_back(json::parse(line));
    expect_obeys_schema(all.back());
  }
  ASSERT_EQ(all.size(), 2 * 4 + 1U);
  EXPECT_EQ(all.back()["type"], "summary");
  EXPECT_EQ(all.back()["budget_bytes"], all[7]["budget_bytes"]);
  EXPECT_EQ(all.back()["policy"], "optimal");
  std::size_t fitting = 0;
  for (std::size_t each = 0; each + 1 < all.size(); ++each) {
    const json& point = all[each];
    const json planned = plan(where + "--policy " + point["policy"].get<std::string>() + " --memory " +
                              point["budget_bytes"].dump());
    for (const char* key :
         {"fits", "simulated", "peak_bytes", "host_bytes", "smallest_budget_bytes", "offload_bytes_per_step",
          "recomputed_ops", "predicted_step_seconds", "oracle_step_seconds", "lower_bound_step_seconds"}) {
      EXPECT_EQ(point[key], planned[key]) << key << " of " << point;
    }
    fitting += point["fits"].get<bool>() ? 1 : 0;
  }
  EXPECT_THAT(outcome.out, HasSubstr("policy conv"));
  const std::vector<testing::XmlElement> picture = testing::XmlReader::read(read("sweep.svg"));
  EXPECT_EQ(static_cast<std::size_t>(std::ranges::count(picture, "circle", &testing::XmlElement::name)),
            fitting);
}

TEST_F(CliTest, ASweepComparesPrecisions) {
  const std::string where = "--model lenet --batch 64 --device sim:h100 ";
  const Outcome outcome =
      run("sweep " + where +
          "--policy optimal --precision fp32,tf32,bf16,fp16 --fp32-layers fc2 --loss-scale 8 " +
          "--points 3 --json " + path("sweep.json") + " --svg " + path("sweep.svg"));
  ASSERT_EQ(outcome.status, 0) << outcome.log;
  std::istringstream lines(read("sweep.json"));
  std::vector<json> all;
  for (std::string line; std::getline(lines, line);) {
    all.push_back(json::parse(line));
    expect_obeys_schema(all.back());
  }
  ASSERT_EQ(all.size(), 3 * 4 + 1U);
  for (std::size_t each = 0; each < 12; ++each) {
    const json& point = all[each];
    const std::string precision = point["precision"];
    EXPECT_EQ(precision, (std::array{"fp32", "tf32", "bf16", "fp16"}[each % 4]));
    const bool narrow = precision == "bf16" || precision == "fp16";
    std::string arguments = where + "--policy optimal --precision ";
    arguments.append(precision).append(narrow ? " --fp32-layers fc2" : "");
    const json planned = plan(arguments + " --memory " + point["budget_bytes"].dump());
    for (const char* key : {"fits", "peak_bytes", "predicted_step_seconds", "product_precision"}) {
      EXPECT_EQ(point[key], planned[key]) << key << " of " << point;
    }
  }
  EXPECT_EQ(all.back()["options"]["fp32"], true) << "the summary is of the first precision";
  EXPECT_THAT(outcome.out, ::testing::ContainsRegex("step ms +budget +fp32 +tf32 +bf16 +fp16"));
  EXPECT_THAT(testing::XmlReader::read(read("sweep.svg"))[1].text, HasSubstr("in fp32, tf32, bf16 and fp16"));
}

// The point names the precision as `plan` does. The name distinguishes a chosen precision from the device's
// default.
TEST_F(CliTest, ASweepInOnePrecisionSaysWhich) {
  for (const auto& [option, precision, products] :
       {std::tuple("", "fp32", R"({"convolutions":"tf32","matrix_products":"fp32"})"),
        std::tuple("--precision fp32 ", "fp32", R"({"convolutions":"fp32","matrix_products":"fp32"})"),
        std::tuple("--tf32 ", "tf32", R"({"convolutions":"tf32","matrix_products":"tf32"})"),
        std::tuple("--precision bf16 ", "bf16", R"({"convolutions":"bf16","matrix_products":"bf16"})")}) {
    const Outcome outcome =
        run(std::string("sweep --model alexnet --batch 8 --device sim:h200 --policy none ") + option +
            "--points 2 --json " + path("sweep.json"));
    ASSERT_EQ(outcome.status, 0) << outcome.log;
    const json point = json::parse(read("sweep.json").substr(0, read("sweep.json").find('\n')));
    EXPECT_EQ(point["precision"], precision) << option;
    EXPECT_EQ(point["product_precision"], json::parse(products)) << option;
    EXPECT_THAT(outcome.out, HasSubstr("policy none, smallest budget"));
  }
}

std::string read_whole(const std::string& file) {
  std::ifstream stream(file);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

std::vector<std::string> texts_of(const std::vector<testing::XmlElement>& picture, const std::string& kind) {
  std::vector<std::string> texts;
  for (const testing::XmlElement& element : picture) {
    if (element.name == "text" && element.attribute("class") == kind) {
      texts.push_back(element.text);
    }
  }
  return texts;
}

// Returns the arguments of the page's `vdnn` command that draws `picture`, without --svg.
std::string drawing_command(const std::string& page, const std::string& picture) {
  const std::size_t end = page.find(" --svg " + picture);
  const std::size_t begin = page.rfind("vdnn sweep ", end);
  if (end == std::string::npos || begin == std::string::npos) {
    ADD_FAILURE() << "no command draws " << picture;
    return "";
  }
  return page.substr(begin + std::string("vdnn ").size(), end - begin - std::string("vdnn ").size());
}

// Compares a page's picture with one that its command has just drawn for other budgets. Title and legend must
// agree.
void expect_alike(const std::string& shown_file, const std::string& made_file) {
  const auto made = testing::XmlReader::read(read_whole(made_file));
  const auto shown = testing::XmlReader::read(read_whole(shown_file));
  EXPECT_EQ(shown[1].name, "title");
  EXPECT_EQ(shown[1].text, made[1].text);
  EXPECT_EQ(texts_of(shown, "legend"), texts_of(made, "legend"));
}

TEST_F(CliTest, ThePictureInTheDocsIsOfTheCommandBesideIt) {
  const std::string docs = VDNN_DOCS_DIRECTORY;
  const std::string command = drawing_command(read_whole(docs + "/precision.md"), "precision.svg");
  ASSERT_EQ(run(command + " --points 2 --svg " + path("precision.svg")).status, 0) << command;
  expect_alike(docs + "/precision.svg", path("precision.svg"));
}

std::vector<json> points_of(const std::string& json_lines) {
  std::vector<json> points;
  std::istringstream lines(json_lines);
  for (std::string line; std::getline(lines, line);) {
    json one = json::parse(line);
    if (one["type"] == "point") {
      points.push_back(std::move(one));
    }
  }
  return points;
}

std::string percent_of(const json& part) {
  return std::to_string(std::lround(100 * part.get<double>())) + " %";
}

// The row of docs/comparison.md about a peer: the peer's smallest budget, and the overheads of the peer and
// of `optimal` in that budget.
std::string line_of_peer(const std::vector<json>& points, const std::string& peer) {
  const auto fits = std::ranges::find_if(
      points, [&](const json& point) { return point["policy"] == peer && point["fits"].get<bool>(); });
  if (fits == points.end()) {
    return peer + " does not fit";
  }
  const auto optimal = std::ranges::find_if(points, [&](const json& point) {
    return point["policy"] == "optimal" && point["budget_bytes"] == (*fits)["budget_bytes"];
  });
  return "| `" + peer + "` | " + format_rounded_size((*fits)["smallest_budget_bytes"]) + " | " +
         percent_of((*fits)["over_oracle"]) + " | " + percent_of((*optimal)["over_oracle"]) + " |";
}

// Runs the commands of the two U-Net pictures in docs/comparison.md unchanged, and compares titles, legends
// and tables.
TEST_F(CliTest, TheComparisonWithPeersIsOfTheCommandsBesideIt) {
  const std::string docs = VDNN_DOCS_DIRECTORY;
  const std::string page = read_whole(docs + "/comparison.md");
  for (const std::string picture : {"peers_unet_h100.svg", "peers_unet_rtx4090.svg"}) {
    SCOPED_TRACE(picture);
    const std::string command = drawing_command(page, picture);
    ASSERT_EQ(run(command + " --json " + path("peers.json") + " --svg " + path("peers.svg")).status, 0)
        << command;
    expect_alike(std::string(docs).append("/").append(picture), path("peers.svg"));
    const std::vector<json> points = points_of(read("peers.json"));
    for (const std::string peer :
         {"checkpoint-blocks", "checkpoint-sqrt", "save-on-cpu", "offload-inputs", "rotor"}) {
      EXPECT_THAT(page, HasSubstr(line_of_peer(points, peer)));
    }
  }
}

TEST_F(CliTest, ASweepComparesWithPeers) {
  const Outcome outcome =
      run("sweep --model resnet20 --batch 16 --device sim:h100 --peers --points 3 --json " +
          path("peers.json") + " --svg " + path("peers.svg"));
  ASSERT_EQ(outcome.status, 0) << outcome.log;
  const std::vector<json> points = points_of(read("peers.json"));
  ASSERT_EQ(points.size(), 3 * (2 + 5U)) << "optimal, none and five peers";
  for (const json& point : points) {
    expect_obeys_schema(point);
  }
  const std::string picture = read("peers.svg");
  for (const std::string peer :
       {"checkpoint-blocks", "checkpoint-sqrt", "save-on-cpu", "offload-inputs", "rotor"}) {
    EXPECT_THAT(outcome.out, HasSubstr("\npeer " + peer));
    EXPECT_THAT(picture, HasSubstr(">" + peer));
  }
  EXPECT_THAT(outcome.out, HasSubstr("\npolicy optimal"));
}

// The first figures and the picture of README.md are those of the sweep command beside them.
TEST_F(CliTest, TheFirstFiguresAreThoseOfTheSweepBesideThem) {
  const std::string docs = VDNN_DOCS_DIRECTORY;
  const std::string page = read_whole(docs + "/../README.md");
  const std::string command = drawing_command(page, "resnet50.svg");
  ASSERT_EQ(run(command + " --json " + path("sweep.json") + " --svg " + path("resnet50.svg")).status, 0)
      << command;
  expect_alike(docs + "/resnet50.svg", path("resnet50.svg"));

  std::vector<json> optimal;
  std::uint64_t unlimited = 0;
  std::istringstream lines(read("sweep.json"));
  for (std::string line; std::getline(lines, line);) {
    const json point = json::parse(line);
    if (point["type"] != "point") {
      continue;
    }
    if (point["policy"] == "optimal") {
      optimal.push_back(point);
    } else if (point["policy"] == "none" && point["fits"].get<bool>()) {
      unlimited = point["peak_bytes"];
    }
  }
  ASSERT_EQ(optimal.size(), 10U);
  ASSERT_NE(unlimited, 0U);
  const auto percent = [](double part) { return std::to_string(std::lround(100 * part)) + " %"; };
  const auto memory = [&](std::size_t at) {
    return percent(optimal[at]["budget_bytes"].get<double>() / static_cast<double>(unlimited));
  };
  const auto longer = [&](std::size_t at) {
    return percent(std::max(0.0, optimal[at]["over_oracle"].get<double>()));
  };
  std::string table = "a step needs " + format_rounded_size(unlimited) + ".\n\n";
  table +=
      "| memory budget | of " + format_rounded_size(unlimited) + " | step takes longer by |\n|---|---|---|\n";
  for (const std::size_t at : {2, 4, 7}) {
    table += "| " + format_rounded_size(optimal[at]["budget_bytes"]) + " | " + memory(at) + " | " +
             longer(at) + " |\n";
  }
  EXPECT_NE(page.find(table), std::string::npos) << table;
}

// Half the bytes take half the time on links without latency, and somewhat more on links with latency.
TEST_F(CliTest, NarrowReductionsArePredictedToTakeLess) {
  const auto seconds = [&](const std::string& precision) {
    const std::string file = path(precision + ".json");
    EXPECT_EQ(run("plan --model vgg16 --batch 32 --device sim:h200 --devices 4 --reduce-precision " +
                  precision + " --json " + file)
                  .status,
              0);
    const json summary = last_line(read(precision + ".json"));
    expect_obeys_schema(summary);
    EXPECT_EQ(summary["options"]["reduce_precision"], precision);
    return summary["predicted_reduce_seconds"].get<double>();
  };
  const double fp32 = seconds("fp32");
  EXPECT_GT(fp32, 0);
  EXPECT_LT(seconds("bf16"), 0.6 * fp32);
}

TEST_F(CliTest, EveryCommandThatPlansKnowsPrecisions) {
  for (const std::string precision : {"fp32", "tf32", "bf16", "fp16"}) {
    const std::string where = "--model lenet --batch 8 --device sim:h100 --precision " + precision;
    EXPECT_EQ(run("plan " + where).status, 0) << precision;
    EXPECT_EQ(run("explain " + where).status, 0) << precision;
    EXPECT_EQ(run("sweep --policy none --points 2 " + where).status, 0) << precision;
    EXPECT_EQ(run("max-batch --model lenet --device sim:h100 --memory 8MiB --precision " + precision).status,
              0)
        << precision;
  }
}

TEST_F(CliTest, ASweepGoesOnFromACheckpointsAlgorithms) {
  ASSERT_EQ(run(kTrain + "--save " + path("checkpoint")).status, 0);
  const Outcome outcome = run("sweep --model lenet --batch 8 --policy none,all --points 2 --resume " +
                              path("checkpoint") + " --json /dev/stdout");
  ASSERT_EQ(outcome.status, 0) << outcome.log;
  EXPECT_EQ(last_line(outcome.out)["options"]["resume"], path("checkpoint"));
  EXPECT_THAT(outcome.log, HasSubstr("policy all"));
}

// --- why it is so ------------------------------------------------------------------------------------------

const std::string kExplain = "explain --model resnet20 --batch 64 --device sim:titan-x --memory 48MiB ";

// `text` must be lines of these types in this order, the last a summary, and each must obey its schema.
void expect_explanation(const std::string& text, const std::vector<std::string>& types) {
  std::istringstream lines(text);
  const json schema = testing::read_json(std::string(VDNN_DOCS_DIRECTORY) + "/explanation.schema.json");
  std::vector<std::string> found;
  for (std::string line; std::getline(lines, line);) {
    const json object = json::parse(line);
    if (found.empty() || found.back() != object["type"]) {
      found.push_back(object["type"]);
    }
    if (object["type"] != "summary") {
      EXPECT_THAT(testing::SchemaCheck::errors(schema, object), ::testing::IsEmpty()) << object.dump(1);
    }
  }
  EXPECT_EQ(found, types);
}

TEST_F(CliTest, ExplainSaysWhyAPlanIsAsItIs) {
  const Outcome outcome = run(kExplain + "--json " + path("explain.json"));
  ASSERT_EQ(outcome.status, 0) << outcome.log;
  expect_explanation(read("explain.json"), {"memory", "smallest_budget", "budget", "time", "summary"});
  const json summary = last_line(read("explain.json"));
  expect_obeys_schema(summary);
  const json planned = plan("--model resnet20 --batch 64 --device sim:titan-x --memory 48MiB");
  for (const char* key :
       {"peak_bytes", "smallest_budget_bytes", "predicted_step_seconds", "recomputed_ops"}) {
    EXPECT_EQ(summary[key], planned[key]) << key;
  }
  EXPECT_EQ(json::parse(read("explain.json").substr(0, read("explain.json").find('\n')))["peak_bytes"],
            planned["peak_bytes"]);
  for (const char* part : {"Most memory is in use at", "The smallest budget", "More memory would give",
                           "with unlimited memory", "A step of"}) {
    EXPECT_THAT(outcome.out, HasSubstr(part));
  }
}

TEST_F(CliTest, ExplainTellsOfValuesLayersAndOps) {
  const Outcome outcome =
      run(kExplain + "--value images --value conv1 --op conv1.forward --json /dev/stdout");
  ASSERT_EQ(outcome.status, 0) << outcome.log;
  expect_explanation(outcome.out, {"value", "op", "summary"});
  EXPECT_THAT(outcome.log, HasSubstr("images: input"));
  EXPECT_THAT(outcome.log, HasSubstr("conv1.y: feature map"));
  EXPECT_THAT(outcome.log, HasSubstr("(as it is)"));
  EXPECT_THAT(outcome.log, HasSubstr("it is loaded, not computed"));
}

bool came_later(const std::string& key) {
  return key == "link_shared_by" || key == "devices" || key == "machines" || key == "accumulate" ||
         key == "sync_bn" || key == "bucket" || key == "network_gbytes_per_s" || key == "tf32" ||
         key == "fp32" || key == "engine_timings" || key == "engine_trial_seconds" || key == "profile" ||
         key == "graph" || key == "keep_algorithms" || key == "precision" || key == "fp32_layers" ||
         key == "loss_scale" || key == "reduce_precision" || key == "step";
}

// Regression: replay refused files from before --graph existed, because they lacked it.
TEST_F(CliTest, SchedulesFromBeforeAnOptionWasThereAreReplayed) {
  ASSERT_EQ(run("plan --model lenet --batch 8 --schedule " + path("schedule.json")).status, 0);
  json schedule = json::parse(read("schedule.json"));
  for (const char* key :
       {"link_shared_by", "devices", "machines", "accumulate", "bucket", "reduce_precision", "sync_bn",
        "network_gbytes_per_s", "precision", "fp32_layers", "loss_scale", "tf32", "fp32", "engine_timings",
        "engine_trial_seconds", "profile", "graph", "keep_algorithms"}) {
    ASSERT_EQ(schedule["origin"].erase(key), 1U) << key;
  }
  write("older.json", schedule.dump());
  for (const std::string name : {"schedule", "older"}) {
    const Outcome outcome =
        run("replay " + path(name + ".json") + " --steps 1 --json " + path(name + ".out"));
    ASSERT_EQ(outcome.status, 0) << outcome.log;
  }
  EXPECT_EQ(last_line(read("older.out"))["weights_sha256"],
            last_line(read("schedule.out"))["weights_sha256"]);
}

TEST_F(CliTest, AnOriginOfAnotherFormIsRefused) {
  ASSERT_EQ(run("plan --model lenet --batch 8 --schedule " + path("schedule.json")).status, 0);
  const json schedule = json::parse(read("schedule.json"));
  const auto expect_refused = [&](const json& origin, const std::string& key) {
    json damaged = schedule;
    damaged["origin"] = origin;
    write("damaged.json", damaged.dump());
    const Outcome outcome = run("replay " + path("damaged.json"));
    EXPECT_EQ(outcome.status, 2) << origin.dump();
    EXPECT_THAT(outcome.log, HasSubstr("'" + key + "'"));
  };
  for (const auto& [key, value] : schedule["origin"].items()) {
    if (!came_later(key)) {
      json missing = schedule["origin"];
      missing.erase(key);
      expect_refused(missing, key);
    }
    json of_another_type = schedule["origin"];
    of_another_type[key] = json::array({value});
    expect_refused(of_another_type, key);
  }
  json unknown = schedule["origin"];
  unknown["colour"] = "red";
  expect_refused(unknown, "colour");
  json fraction = schedule["origin"];
  fraction["batch"] = 8.5;
  expect_refused(fraction, "batch");
  json negative = schedule["origin"];
  negative["seed"] = -1;
  expect_refused(negative, "seed");
  json resumed = schedule["origin"];
  resumed["resume"] = "checkpoint";
  expect_refused(resumed, "resume");
  json learned = schedule["origin"];
  learned["step"] = "step.json";
  expect_refused(learned, "step");
}

TEST_F(CliTest, TracesAreJsonWithATrackAStreamAndMemoryCounters) {
  ASSERT_EQ(run(kTrain + "--policy all --trace " + path("run.json")).status, 0);
  ASSERT_EQ(run("plan --model lenet --batch 8 --policy all --trace " + path("plan.json")).status, 0);
  for (const std::string name : {"run.json", "plan.json"}) {
    const json trace = json::parse(read(name));
    std::vector<std::string> tracks;
    std::vector<std::string> counters;
    for (const json& event : trace["traceEvents"]) {
      if (event["ph"] == "M" && event["name"] == "thread_name") {
        tracks.push_back(event["args"]["name"]);
      } else if (event["ph"] == "C") {
        counters.push_back(event["name"]);
      }
    }
    EXPECT_THAT(tracks, ::testing::IsSupersetOf({"compute", "offload", "prefetch", "load", "steps"})) << name;
    EXPECT_THAT(counters, ::testing::IsSupersetOf({"device memory in use", "page-locked memory in use"}))
        << name;
  }
}

// --- bad input ---------------------------------------------------------------------------------------------

// Arguments with which the command exits with status 2, and a part of the message, which names the error.
struct BadInput {
  const char* name;
  const char* arguments;
  const char* message;
};

class BadInputTest : public CliTest, public ::testing::WithParamInterface<BadInput> {};

// Each case has its own files, because the command briefly creates outputs to see whether they are writable.
TEST_P(BadInputTest, ExitsWithStatusTwoAndNamesIt) {
  const Outcome outcome = run(std::regex_replace(GetParam().arguments, std::regex("vdnn-test"),
                                                 std::string("vdnn-test-") + GetParam().name));
  EXPECT_EQ(outcome.status, 2) << outcome.log;
  EXPECT_THAT(outcome.log, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Cli, BadInputTest,
    ::testing::Values(
        BadInput{"NoCommand", "", "train"}, BadInput{"UnknownCommand", "fly", "fly"},
        BadInput{"SweepThatTimes", "sweep --model lenet --device cpu --engine-trial-seconds 5",
                 "times engines only for --engine-timings"},
        BadInput{"UnknownOption", "plan --model lenet --colour red", "--colour"},
        BadInput{"NoModel", "plan", "--model"}, BadInput{"UnknownModel", "plan --model lenin", "fashion-vgg"},
        BadInput{"UnknownPolicy", "plan --model lenet --policy most", "baseline, none, all, conv"},
        BadInput{"UnknownPublication", "reproduce vdnn2017", "vdnn2016"},
        BadInput{"NoPublication", "reproduce", "publication"},
        BadInput{"UnknownPreference", "plan --model lenet --algorithms fast", "memory, performance"},
        BadInput{"UnknownDevice", "plan --model lenet --device tpu", "sim:NAME"},
        BadInput{"NoOrdinal", "plan --model lenet --device cuda:first", "cuda:N"},
        BadInput{"ProfileThatIsNotThere", "plan --model lenet --device sim:/nonexistent/gpu.json",
                 "gpu.json: cannot be read"},
        BadInput{"ProfileThatIsNone",
                 "plan --model lenet --device sim:" VDNN_DEVICES_DIRECTORY "/cudnn-a100.json",
                 "lacks 'schema'"},
        BadInput{"UnknownProfile", "plan --model lenet --device sim:abacus", "titan-x"},
        BadInput{"UnknownOptimizer", "plan --model lenet --optimizer newton", "sgd, adam, adamw"},
        BadInput{"MomentumOfAdam", "plan --model lenet --optimizer adam --momentum 0.9",
                 "--momentum belongs to --optimizer sgd"},
        BadInput{"BetaOfSgd", "plan --model lenet --beta1 0.9", "--beta1 belongs to --optimizer adam"},
        BadInput{"OtherBetaOfSgd", "plan --model lenet --beta2 0.9", "--beta2 belongs"},
        BadInput{"EpsilonOfSgd", "plan --model lenet --epsilon 1", "--epsilon belongs"},
        BadInput{"MomentumIsNoNumber", "plan --model lenet --momentum nan", "--momentum"},
        BadInput{"BetaOfOne", "plan --model lenet --optimizer adamw --beta1 1", "beta"},
        BadInput{"EpsilonOfZero", "plan --model lenet --optimizer adam --epsilon 0", "epsilon"},
        BadInput{"NegativeDecay", "plan --model lenet --weight-decay -0.1", "--weight-decay"},
        BadInput{"ClippedToNothing", "plan --model lenet --clip-norm 0", "--clip-norm"},
        BadInput{"FindsAndAllowsNan", "train --model lenet --data synthetic --steps 1 --find-nan --allow-nan",
                 "--allow-nan"},
        BadInput{"ClipNormIsInfinite", "plan --model lenet --clip-norm inf", "--clip-norm"},
        BadInput{"SaveEveryWithoutSave", "train --model lenet --data synthetic --steps 1 --save-every 2",
                 "--save-every belongs to --save"},
        BadInput{"ProgressEveryNegative",
                 "train --model lenet --data synthetic --steps 1 --progress-every -1", "--progress-every -1"},
        BadInput{"KeptAndReplanned",
                 "train --model lenet --data synthetic --steps 9 --keep-algorithms --replan-after 6 "
                 "--replan-algorithms",
                 "--keep-algorithms and --replan-algorithms: give one of them"},
        BadInput{"ReplanTwice",
                 "train --model lenet --data synthetic --steps 9 --replan-after 6 --replan-every 6",
                 "--replan-after and --replan-every: give one of them"},
        BadInput{"ReplanTooSoon", "train --model lenet --data synthetic --steps 9 --replan-after 5",
                 "planning anew after 5 steps: at least 6"},
        BadInput{"ReplanAlgorithmsAlone",
                 "train --model lenet --data synthetic --steps 9 --replan-algorithms",
                 "--replan-algorithms belongs to --replan-after"},
        BadInput{"LearnedFromTooFew", "train --model lenet --data synthetic --steps 5 --learned x",
                 "learning from a training of 5 steps"},
        BadInput{"LearnedNowhere", "train --model lenet --data synthetic --steps 9 --learned /nowhere/at/all",
                 "--learned"},
        BadInput{"SaveEveryZero", "train --model lenet --data synthetic --steps 1 --save x --save-every 0",
                 "--save-every"},
        BadInput{"CropWithoutAugment", "train --model lenet --data synthetic --steps 1 --crop-padding 2",
                 "--crop-padding belongs to --augment"},
        BadInput{"CropTooFar", "train --model lenet --data synthetic --steps 1 --augment --crop-padding 28",
                 "28"},
        BadInput{"SaveToADevice", "train --model lenet --data synthetic --steps 1 --save /dev/null",
                 "--save"},
        BadInput{"SaveToNowhere", "train --model lenet --data synthetic --steps 1 --save /nowhere/x",
                 "--save"},
        BadInput{"SaveOverTheLog",
                 "train --model lenet --data synthetic --steps 1 --save vdnn-test-x --json vdnn-test-x",
                 "two outputs"},
        BadInput{
            "LearnedOverTheCheckpoint",
            "train --model lenet --data synthetic --steps 9 --learned vdnn-test-x --resume ./vdnn-test-x",
            "also an output"},
        BadInput{"CheckpointOverTheProfile",
                 "train --model lenet --data synthetic --steps 9 --save vdnn-test-x --profile vdnn-test-x",
                 "also an output"},
        BadInput{"EngineTimingsOverTheCheckpoint",
                 "train --model lenet --data synthetic --steps 9 --engine-timings vdnn-test-x --resume "
                 "vdnn-test-x",
                 "also an output"},
        BadInput{"LogOverTheDevice",
                 "train --model lenet --data synthetic --steps 9 --device sim:./vdnn-test.json --json "
                 "vdnn-test.json",
                 "also an output"},
        BadInput{"PlanOverTheDevice",
                 "plan --model lenet --device sim:vdnn-test.json --report vdnn-test.json", "also an output"},
        BadInput{"SweepOverTheDevice",
                 "sweep --model lenet --device sim:vdnn-test.json --svg ./vdnn-test.json", "also an output"},
        BadInput{"ExplanationOverTheDevice",
                 "explain --model lenet --device sim:vdnn-test.json --json vdnn-test.json", "also an output"},
        BadInput{"LargestBatchOverTheDevice",
                 "max-batch --model lenet --device sim:vdnn-test.json --json vdnn-test.json",
                 "also an output"},
        BadInput{"ReplayOverTheDevice",
                 "replay vdnn-test-x --device sim:vdnn-test.json --json vdnn-test.json", "also an output"},
        BadInput{"CostsOverTheDevice",
                 "profile --model lenet --device sim:vdnn-test.json --output vdnn-test.json",
                 "also an output"},
        BadInput{"LogOverTheCheckpoint",
                 "train --model lenet --data synthetic --steps 1 --resume vdnn-test-x --json ./vdnn-test-x",
                 "also an output"},
        BadInput{"UnknownSchedule", "train --model lenet --data synthetic --steps 1 --lr-schedule wavy",
                 "constant"},
        BadInput{"BatchOfZero", "plan --model lenet --batch 0", "batch"},
        BadInput{"NegativeBatch", "plan --model lenet --batch -3", "batch"},
        BadInput{"BatchIsNoNumber", "plan --model lenet --batch many", "many"},
        BadInput{"BatchOverflows", "plan --model lenet --batch 9000000000000000000", "overflow"},
        BadInput{"BatchDoesNotParse", "plan --model lenet --batch 99999999999999999999", "overflow"},
        BadInput{"InputOverflows", "plan --model fashion-vgg --input 4000000x4000000x4000000", "overflow"},
        BadInput{"InputTooSmall", "plan --model lenet --input 1x4x4", "conv"},
        BadInput{"InputIsNoShape", "plan --model lenet --input 1x28by28", "CxHxW"},
        BadInput{"InputEndsEarly", "plan --model lenet --input 1x28x", "CxHxW"},
        BadInput{"NegativeClasses", "plan --model lenet --classes -1", "classes"},
        BadInput{"SizeInUnknownUnits", "plan --model lenet --memory 512Mb", "512MiB"},
        BadInput{"SizeIsNegative", "plan --model lenet --memory=-1", "512MiB"},
        BadInput{"SizeOverflows", "plan --model lenet --memory 99999999999GiB", "overflow"},
        BadInput{"NoMemory", "plan --model lenet --memory 0", "--memory"},
        BadInput{"NoThreads", "plan --model lenet --threads -1", "--threads"},
        BadInput{"WorkspaceLimitTooTight", "plan --model lenet --workspace-limit 1 --algorithms performance",
                 "the least is"},
        BadInput{"WorkspaceLimitThatNothingKeeps", "plan --model lenet --device sim:h200 --workspace-limit 1",
                 "all ops of the network have an algorithm within"},
        BadInput{"Tf32OnCpu", "plan --model lenet --device cpu --tf32", "--tf32"},
        BadInput{"Tf32OnASimulatedCpu", "plan --model lenet --device sim:cpu --tf32", "--tf32"},
        BadInput{"Tf32OnAClassicGpu", "plan --model lenet --device sim:titan-x --tf32", "--tf32"},
        BadInput{"Tf32AndFp32", "plan --model lenet --device sim:h200 --tf32 --fp32", "give one of them"},
        BadInput{"UnknownPrecision", "plan --model lenet --device cpu --precision bf61",
                 "did you mean 'bf16'"},
        BadInput{"UnknownReducePrecision", "plan --model lenet --device cpu --reduce-precision bf61",
                 "--reduce-precision 'bf61' is unknown"},
        BadInput{"ReducePrecisionTf32", "plan --model lenet --device cpu --reduce-precision tf32",
                 "--reduce-precision tf32: TF32 applies to products"},
        BadInput{"PrecisionWithoutARate", "plan --model lenet --device sim:titan-x --precision bf16",
                 "--precision bf16: the profile of sim:titan-x has no rate of it"},
        BadInput{"Bf16BeforeAmpere", "plan --model lenet --device sim:v100-16 --precision bf16",
                 "no rate of it"},
        BadInput{"Fp32LayersInFp32", "plan --model lenet --device cpu --fp32-layers fc1",
                 "--fp32-layers: belongs to --precision bf16 or fp16"},
        BadInput{"Fp32LayerThatIsNotThere",
                 "plan --model lenet --device cpu --precision bf16 --fp32-layers fc1,conv9", "'conv9'"},
        BadInput{"LossScaleInBf16", "plan --model lenet --device cpu --precision bf16 --loss-scale 8",
                 "--loss-scale: belongs to --precision fp16"},
        BadInput{"LossScaleOfZero", "plan --model lenet --device cpu --precision fp16 --loss-scale 0",
                 "a scale of 0"},
        BadInput{"LossScaleIsNoNumber", "plan --model lenet --device cpu --precision fp16 --loss-scale nan",
                 "--loss-scale"},
        BadInput{"NegativeLossScale", "plan --model lenet --device cpu --precision fp16 --loss-scale=-8",
                 "--loss-scale"},
        BadInput{"PrecisionTf32AndFp32", "plan --model lenet --device sim:h200 --precision tf32 --fp32",
                 "--precision tf32 and --fp32"},
        BadInput{"EngineTrialSecondsOnCpu", "plan --model lenet --device cpu --engine-trial-seconds 9",
                 "--engine-trial-seconds"},
        BadInput{"NegativeEngineTrialSeconds", "plan --model lenet --device cpu --engine-trial-seconds -9",
                 "--engine-trial-seconds"},
        BadInput{"EngineTimingsOnCpu", "plan --model lenet --device cpu --engine-timings /tmp/timings.json",
                 "--engine-timings"},
        BadInput{"EngineTimingsOnSim",
                 "plan --model lenet --device sim:h200 --engine-timings /tmp/timings.json",
                 "--engine-timings"},
        BadInput{"EngineTimingsNowhere",
                 "plan --model lenet --device cpu --engine-timings /nowhere/timings.json",
                 "--engine-timings: cannot write"},
        BadInput{"EngineTimingsInAnOutput",
                 "plan --model lenet --json /tmp/both.json --engine-timings /tmp/both.json", "two outputs"},
        BadInput{"NoDuration", "train --model lenet --data synthetic", "--epochs"},
        BadInput{"StepsOfZero", "train --model lenet --data synthetic --steps 0", "--steps"},
        // Regression: the message named --epochs, an option that replay does not have.
        BadInput{"ReplayOfZeroSteps", "replay /nowhere/schedule.json --steps 0", "--steps 0: must be at"},
        // Regression: the product overflowed to zero steps, and the command reported a finished training run.
        BadInput{"EpochsOverflow",
                 "train --model lenet --batch 1 --data synthetic --epochs 18446744073709551615", "overflow"},
        BadInput{"TwoDurations", "train --model lenet --data synthetic --steps 1 --epochs 1", "excludes"},
        BadInput{"EmptySize", "plan --model lenet --memory ''", "--memory"},
        BadInput{"RateIsNoNumber", "train --model lenet --data synthetic --steps 1 --lr nan", "--lr"},
        // Regression: the message required a finite number, which 1e39 is.
        BadInput{"RateIsNoFloat", "train --model lenet --data synthetic --steps 1 --lr 1e39",
                 "--lr 1e+39: must be a number from 0 to 3.40282e+38"},
        // Regression: the message named only the padding, which the user had not given.
        BadInput{"ImagesSmallerThanThePadding",
                 "train --model resnet20 --input 3x4x4 --data synthetic --steps 1 --augment",
                 "--crop-padding"},
        // Regression: the command exited with status 3 because of a budget that the user had not given.
        BadInput{"LargerThanTheSimulatorCanPlace", "plan --model vgg16 --batch 10000000 --device sim:titan-x",
                 "larger than the simulator can place"},
        BadInput{"TooManyThreads", "plan --model lenet --threads 40000", "--threads"},
        BadInput{"ThreadsOfZero", "plan --model lenet --threads 0", "--threads"},
        BadInput{"MoreThanTheAddressSpace", "plan --model lenet --device cpu --memory 200TiB", "--memory"},
        BadInput{"ReportInTheFileOfTheTrace", "plan --model lenet --trace /dev/null --report /dev/null",
                 "two outputs are to be written to /dev/null"},
        BadInput{"OpsWithoutJson", "plan --model lenet --ops", "--ops belongs to --json"},
        BadInput{"EmptyReport", "plan --model lenet --report ''", "--report"},
        BadInput{"ReportOfATraining", "train --model lenet --data synthetic --steps 1 --report x.html",
                 "--report"},
        BadInput{"NoSuchPort", "train --model lenet --data synthetic --steps 1 --metrics-port 65536",
                 "--metrics-port 65536: must be from 0 to 65535"},
        BadInput{"PortIsNoNumber", "train --model lenet --data synthetic --steps 1 --metrics-port http",
                 "--metrics-port: 'http' is not a whole number"},
        BadInput{"AddressWithoutAPort",
                 "train --model lenet --data synthetic --steps 1 --metrics-address 0.0.0.0",
                 "--metrics-address belongs to --metrics-port"},
        BadInput{
            "AddressOfAnotherMachine",
            "train --model lenet --data synthetic --steps 1 --metrics-port 0 --metrics-address 192.0.2.1",
            "--metrics-port 0 on 192.0.2.1: "},
        BadInput{"TwoOutputsInOneFile", "plan --model lenet --json /dev/null --trace /dev/null",
                 "two outputs"},
        BadInput{"NoData", "train --model lenet --steps 1", "--data"},
        BadInput{"UnknownData", "train --model lenet --data mnist-of-letters --steps 1", "fashion-mnist"},
        BadInput{"Cifar10OfAnotherShape", "train --model lenet --data cifar10:/tmp --steps 1", "3x32x32"},
        BadInput{"DataMissing", "train --model lenet --data fashion-mnist:/nowhere --steps 1", "/nowhere"},
        BadInput{"DataOfAnotherShape",
                 "train --model fashion-vgg --input 3x32x32 --data fashion-mnist --steps 1",
                 "use --input 1x28x28 --classes 10"},
        BadInput{"TrainOnSim", "train --model lenet --data synthetic --steps 1 --device sim:h200", "plan"},
        BadInput{"GraphsOnCpu", "train --model lenet --data synthetic --steps 1 --device cpu --graph",
                 "steps cannot be graphs on cpu"},
        BadInput{"LinkOfZero", "train --model lenet --data synthetic --steps 1 --link-gbytes-per-s 0",
                 "link"},
        BadInput{"OverheadWithoutItsSign", "max-batch --model lenet --overhead 0.1", "for example 10%"},
        BadInput{"OverheadAndARate", "max-batch --model lenet --overhead 10% --images-per-second 10",
                 "--images-per-second cannot be combined"},
        BadInput{"RateOfNothing", "max-batch --model lenet --images-per-second 0", "above 0"},
        BadInput{"OverheadBelowZero", "max-batch --model lenet --overhead=-1%", "for example 10%"},
        BadInput{"OverheadIsNoNumber", "max-batch --model lenet --overhead nan%", "for example 10%"},
        BadInput{"OverheadThatNothingKeeps",
                 "max-batch --model vgg16 --device sim:titan-x --policy all --overhead 0%",
                 "the least overhead is"},
        BadInput{"GlobalBatchThatCannotBeShared",
                 "max-batch --model lenet --device sim:v100-16 --devices 4 --global-batch 6",
                 "share it evenly"},
        BadInput{"GlobalBatchWithItsNumberOfBatches",
                 "max-batch --model lenet --device sim:v100-16 --global-batch 8 --accumulate 2",
                 "--accumulate"},
        BadInput{"NetworkWithoutARate",
                 "plan --model lenet --device sim:v100-16 --machines 2 --network-gbytes-per-s 0",
                 "--network-gbytes-per-s"},
        BadInput{"MaxBatchOfABatch", "max-batch --model lenet --batch 4", "--batch"},
        BadInput{"MaxBatchOfAnUnknownModel", "max-batch --model lenet9", "lenet9"},
        // Regression: the message did not suggest the similar name.
        BadInput{"MisspeltModel", "plan --model rsenet50",
                 "unknown model 'rsenet50' (did you mean 'resnet50'?)"},
        BadInput{"MisspeltDevice", "plan --model lenet --device cpux", "(did you mean 'cpu'?)"},
        BadInput{"MisspeltSimulatedDevice", "plan --model lenet --device sim:titanx",
                 "(did you mean 'titan-x'?)"},
        BadInput{"MisspeltPolicy", "plan --model lenet --policy optmial", "(did you mean 'optimal'?)"},
        BadInput{"MisspeltOption", "plan --model lenet --bacth 8", "--bacth (did you mean '--batch'?)"},
        BadInput{"MisspeltOptionWithItsValue", "plan --model lenet --polcy=all",
                 "--polcy (did you mean '--policy'?)"},
        // The missing required option is the misspelt one.
        BadInput{"MisspeltRequiredOption", "plan --modle lenet", "--modle (did you mean '--model'?)"},
        BadInput{"MisspeltCommand", "trian --model lenet", "trian (did you mean 'train'?)"},
        BadInput{"MisspeltShell", "completion zhs", "(did you mean 'zsh'?)"},
        BadInput{"ManualOfNothing", "manual", "--markdown and --man"},
        BadInput{"ManPagesNowhere", "manual --man /nowhere", "/nowhere"},
        BadInput{"ExplainAnUnknownValue", "explain --model lenet --value conv1.z", "similar names: conv1.y"},
        BadInput{"ExplainAnUnknownOp", "explain --model lenet --op conv1.forwards",
                 "similar names: conv1.forward"},
        BadInput{"ExplainNoName", "explain --model lenet --value ''", "--value"},
        BadInput{"SweepInAnUnknownPrecision", "sweep --model lenet --device sim:h100 --precision fp32,bf61",
                 "--precision 'bf61' is unknown"},
        BadInput{"SweepInAPrecisionTwice", "sweep --model lenet --device sim:h100 --precision bf16,fp32,bf16",
                 "bf16 is there twice"},
        BadInput{"SweepInAPrecisionWithoutARate",
                 "sweep --model lenet --device sim:v100-16 --precision fp16,bf16",
                 "--precision bf16: the profile of sim:v100-16 has no rate of it"},
        BadInput{"SweepInTf32WithoutARate", "sweep --model lenet --device sim:v100-16 --precision fp32,tf32",
                 "--precision tf32: the profile of sim:v100-16 has no rate of it"},
        BadInput{"SweepInFp32AndTf32", "sweep --model lenet --device sim:h100 --precision fp32,bf16 --tf32",
                 "--precision fp32 and --tf32"},
        BadInput{"SweepOfNoNarrowLayers",
                 "sweep --model lenet --device sim:h100 --precision fp32,tf32 --fp32-layers fc3",
                 "--fp32-layers: belongs to --precision bf16 or fp16"},
        BadInput{"SweepOfNoScaledLoss",
                 "sweep --model lenet --device sim:h100 --precision fp32,bf16 --loss-scale 8",
                 "--loss-scale: belongs to --precision fp16"},
        BadInput{"SweepInABudget", "sweep --model lenet --memory 1GiB", "--memory"},
        BadInput{"SweepOfAuto", "sweep --model lenet --policy auto", "--policy auto"},
        BadInput{"SweepOfAnUnknownPolicy", "sweep --model lenet --policy optimal,best", "best"},
        BadInput{"SweepDownwards", "sweep --model lenet --from 2GiB --to 1GiB", "--from"},
        BadInput{"SweepFromNothing", "sweep --model lenet --from 0", "--from"},
        BadInput{"SweepOfAStepWithPeers", "sweep --step " VDNN_STEPS_DIRECTORY "/resnet18.json --peers",
                 "--peers"},
        BadInput{"SweepOfOnePoint", "sweep --model lenet --points 1", "--points"},
        BadInput{"SweepIntoOneFile", "sweep --model lenet --json /tmp/same --svg /tmp/same", "two outputs"},
        BadInput{"SweepToNowhere", "sweep --model lenet --svg /nowhere/sweep.svg", "/nowhere"},
        BadInput{"ProfileOfNothing", "plan --model lenet --profile /nowhere/costs.json", "/nowhere"},
        BadInput{"ProfileToNowhere", "profile --model lenet -o /nowhere/costs.json", "--output"},
        BadInput{"ProfileWithoutAFile", "profile --model lenet", "--output"},
        BadInput{"ProfileOnSimWithSteps",
                 "profile --model lenet --device sim:h200 --steps 9 -o /tmp/costs.json",
                 "--steps: nothing is measured on sim:h200"},
        BadInput{"ProfileOnSimWithALink",
                 "profile --model lenet --device sim:h200 --link-gbytes-per-s 1 -o /tmp/costs.json",
                 "--link-gbytes-per-s: nothing is measured on sim:h200"},
        BadInput{"ProfileOfFewSteps", "profile --model lenet --device cpu --steps 4 -o /tmp/costs.json",
                 "at least 5"},
        // Regression: the command noticed only after all steps that an op was not timed.
        BadInput{"ProfileOfFewerStepsThanAnUpdate",
                 "profile --model lenet --device cpu --accumulate 6 --steps 5 -o /tmp/costs.json",
                 "--accumulate 6 --steps 5: "},
        BadInput{"ProfileUnderAPolicy", "profile --model lenet --policy all -o /tmp/costs.json", "--policy"},
        BadInput{"ReplayOfNothing", "replay /nowhere/schedule.json", "/nowhere"}),
    [](const auto& test) { return test.param.name; });

TEST_F(CliTest, ADamagedDataSetIsNamed) {
  std::filesystem::create_directories(directory_ / "data");
  for (const char* name : {"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz",
                           "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"}) {
    write(std::string("data/") + name, "this is no data set");
  }
  const Outcome outcome = run("train --model lenet --steps 1 --data fashion-mnist:" + path("data"));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.log, HasSubstr("train-images-idx3-ubyte"));
}

TEST_F(CliTest, AnOutputThatCannotBeWrittenIsFoundBeforeTraining) {
  write("file", "in the way");
  for (const std::string option : {"--json", "--trace", "--save"}) {
    // If the command ran this many steps, the test would time out.
    const Outcome outcome = run("train --model fashion-vgg --data synthetic --steps 1000000 " + option + " " +
                                path("file/out.json"));
    EXPECT_EQ(outcome.status, 2) << option;
    EXPECT_THAT(outcome.log, HasSubstr(path("file")));
  }
  for (const std::string option : {"--schedule", "--report"}) {
    EXPECT_EQ(run("plan --model lenet " + option + " " + path("missing/out")).status, 2) << option;
  }
  EXPECT_EQ(read("file"), "in the way");
}

// A full disk is not bad input, which would be status 2.
TEST_F(CliTest, AnOutputThatFailsWhileItIsWrittenExitsWithStatusOne) {
  for (const std::string option : {"--json", "--trace"}) {
    const Outcome outcome = run(kTrain + option + " /dev/full");
    EXPECT_EQ(outcome.status, 1) << option << outcome.log;
    EXPECT_THAT(outcome.log, HasSubstr("/dev/full"));
  }
  for (const std::string option : {"--json", "--trace", "--schedule", "--report"}) {
    EXPECT_EQ(run("plan --model lenet " + option + " /dev/full").status, 1) << option;
  }
  EXPECT_EQ(run("plan --model lenet >/dev/full").status, 1);
}

TEST_F(CliTest, ACheckpointThatCannotBeWrittenLeavesThePreviousOneAndExitsWithStatusOne) {
  const std::string checkpoint = path("checkpoint");
  train(kLonger + "--steps 1 --save " + checkpoint);
  const std::string previous = read("checkpoint");
  const Outcome outcome =
      run("train " + kLonger + "--steps 2 --resume " + checkpoint + " --save " + checkpoint,
          "trap '' XFSZ; ulimit -f 100; ");
  EXPECT_EQ(outcome.status, 1) << outcome.log;
  EXPECT_THAT(outcome.log, HasSubstr("checkpoint"));
  EXPECT_TRUE(read("checkpoint") == previous);
}

}  // namespace
}  // namespace vdnn
