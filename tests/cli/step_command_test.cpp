// `vdnn plan`, `sweep` and `max-batch` of a learned step, as processes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/command_test.h"
#include "tests/report/json_schema.h"

namespace vdnn::step_command_test {
namespace {

using json = nlohmann::json;
using ::testing::AllOf;
using testing::CommandOutcome;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::read_json;
using testing::SchemaCheck;

const std::string kUnet = std::string(VDNN_STEPS_DIRECTORY) + "/unet.json";

std::vector<json> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<json> lines;
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(json::parse(line));
  }
  return lines;
}

class StepCommand : public testing::CommandTest {
 protected:
  // Runs a command that must succeed. Each JSON line must obey the schema of its type.
  std::vector<json> json_lines(const std::string& arguments) const {
    const CommandOutcome outcome = run(arguments + " --json " + path("lines.json"));
    EXPECT_EQ(outcome.status, 0) << outcome.log;
    const std::vector<json> lines = lines_of(read("lines.json"));
    for (const json& line : lines) {
      const std::string type = line.at("type");
      const std::string name = type.starts_with("planning_") ? "planning_problem" : type;
      EXPECT_THAT(SchemaCheck::errors(
                      read_json(std::string(VDNN_DOCS_DIRECTORY) + "/" + name + ".schema.json"), line),
                  IsEmpty());
    }
    return lines;
  }
  json plan(const std::string& arguments) const { return json_lines("plan " + arguments).back(); }
};

TEST_F(StepCommand, PlanReportsTheStepsCostsAndTheirSources) {
  const json step = json::parse(std::ifstream(kUnet));
  const CommandOutcome outcome =
      run("plan --step " + kUnet + " --device sim:a100 --policy none --json " + path("plan.json"));
  ASSERT_EQ(outcome.status, 0) << outcome.log;
  EXPECT_THAT(
      outcome.out,
      AllOf(HasSubstr("U-Net, batch 4, on sim:a100"),
            HasSubstr("times of ops are those of the learned step, recorded by PyTorch 2.15.0 on cpu"),
            HasSubstr("are those of sim:a100; plans only offload"), Not(HasSubstr("convolutions in"))));
  const json summary = lines_of(read("plan.json")).back();
  EXPECT_EQ(summary["model"], "U-Net");
  EXPECT_EQ(summary["batch"], 4);
  EXPECT_EQ(summary["algorithms_source"], "PyTorch 2.15.0 on cpu");
  EXPECT_EQ(summary["rates"], "recorded");
  EXPECT_TRUE(summary["precision"].is_null());
  EXPECT_EQ(summary["options"]["step"], kUnet);
  EXPECT_NEAR(summary["predicted_step_seconds"], step["seconds"], 1e-6);
  EXPECT_GE(summary["peak_bytes"], step["peak_bytes"]);
}

TEST_F(StepCommand, PlansKeepToTheirSchemasAndRecomputeNothing) {
  for (const std::string policy : {"none", "all", "optimal", "baseline"}) {
    EXPECT_EQ(plan("--step " + kUnet + " --device sim:a100 --policy " + policy)["recomputed_ops"], 0)
        << policy;
  }
  const std::vector<json> lines = json_lines("plan --step " + kUnet + " --device sim:a100 --ops");
  EXPECT_EQ(lines.front()["type"], "planning_device");
  for (const json& line : lines) {
    EXPECT_FALSE(line.value("may_run_again", false)) << line;
  }
}

TEST_F(StepCommand, ABudgetIsKeptTo) {
  const json kept = plan("--step " + kUnet + " --device sim:a100 --policy none");
  const std::uint64_t budget = kept["peak_bytes"].get<std::uint64_t>() * 3 / 4;
  const json offloaded = plan("--step " + kUnet + " --device sim:a100 --memory " + std::to_string(budget));
  EXPECT_EQ(offloaded["policy"], "optimal");
  EXPECT_LE(offloaded["peak_bytes"], budget);
  EXPECT_GT(offloaded["offload_bytes_per_step"], 0);
  const CommandOutcome refused =
      run("plan --step " + kUnet + " --device sim:a100 --policy none --memory " + std::to_string(budget));
  EXPECT_EQ(refused.status, 3);
  EXPECT_THAT(refused.log, AllOf(HasSubstr("--batch "), HasSubstr("--policy optimal fits")));
}

TEST_F(StepCommand, ReportsAndTracesAreWritten) {
  const CommandOutcome outcome = run("plan --step " + kUnet + " --device sim:a100 --memory 600MiB --report " +
                                     path("plan.html") + " --trace " + path("trace.json"));
  ASSERT_EQ(outcome.status, 0) << outcome.log;
  EXPECT_THAT(read("plan.html"), HasSubstr("U-Net, batch 4"));
  EXPECT_FALSE(json::parse(read("trace.json")).empty());
}

TEST_F(StepCommand, SweepSaysWhatPlanSaysInEachBudget) {
  const std::vector<json> lines = json_lines("sweep --step " + kUnet + " --device sim:a100 --points 3");
  ASSERT_EQ(lines.size(), 3U * 3U + 1U) << "policies optimal, none and all, and a summary";
  for (std::size_t each = 0; each + 1 < lines.size(); ++each) {
    const json& point = lines[each];
    EXPECT_TRUE(point["precision"].is_null());
    EXPECT_EQ(point["rates"], "recorded");
    if (point["fits"] == false) {
      continue;
    }
    const json planned =
        plan("--step " + kUnet + " --device sim:a100 --policy " + point["policy"].get<std::string>() +
             " --memory " + std::to_string(point["budget_bytes"].get<std::uint64_t>()));
    for (const char* const key :
         {"peak_bytes", "host_bytes", "offload_bytes_per_step", "predicted_step_seconds"}) {
      EXPECT_EQ(planned[key], point[key]) << key;
    }
  }
}

TEST_F(StepCommand, MaxBatchGrowsTheStepInProportionAndSaysSo) {
  const std::vector<json> lines =
      json_lines("max-batch --step " + kUnet + " --device sim:a100 --memory 1200MiB");
  std::vector<json> rows;
  for (const json& line : lines) {
    if (line["type"] == "largest_batch") {
      rows.push_back(line);
    }
  }
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_GT(rows.back()["batch"], 4);
  for (const json& row : rows) {
    const std::string where = "--step " + kUnet + " --device sim:a100 --memory 1200MiB --policy " +
                              row["policy"].get<std::string>() + " --batch ";
    const json planned = plan(where + std::to_string(row["batch"].get<int>()));
    EXPECT_EQ(planned["peak_bytes"], row["peak_bytes"]);
    EXPECT_EQ(planned["predicted_step_seconds"], row["predicted_step_seconds"]);
  }
  const CommandOutcome outcome = run("max-batch --step " + kUnet + " --device sim:a100 --memory 1200MiB");
  EXPECT_THAT(outcome.out,
              HasSubstr("tensors and times in proportion to the recorded batch, 4, except for memory "
                        "in use throughout the step"));
}

TEST_F(StepCommand, AStepThatDoesNotSayItsBatchIsPlannedAsItIs) {
  json step = json::parse(std::ifstream(kUnet));
  step.erase("batch");
  write("step.json", step.dump());
  EXPECT_EQ(plan("--step " + path("step.json") + " --device sim:a100")["batch"], 1);
  for (const std::string command : {"max-batch --step ", "plan --batch 2 --step "}) {
    const CommandOutcome refused = run(command + path("step.json") + " --device sim:a100");
    EXPECT_EQ(refused.status, 2);
    EXPECT_THAT(refused.log, HasSubstr("export it with its batch")) << command;
  }
}

// Options that do not apply to a learned step.
TEST_F(StepCommand, WhatAStepIsNotIsRefusedByName) {
  struct Refused {
    std::string arguments;
    std::string reason;
  };
  for (const auto& [arguments, reason] : std::vector<Refused>{
           {"plan", "--model and --step: give one of them"},
           {"plan --step STEP --model lenet", "--model and --step: give one of them"},
           {"plan --step STEP --input 3x32x32", "--input: belongs to --model"},
           {"plan --step STEP --classes 10", "--classes: belongs to --model"},
           {"plan --step STEP --devices 2", "--devices: belongs to --model"},
           {"plan --step STEP --accumulate 2", "--accumulate: belongs to --model"},
           {"plan --step STEP --precision bf16", "--precision: belongs to --model"},
           {"plan --step STEP --tf32", "--tf32: belongs to --model"},
           {"plan --step STEP --algorithms memory", "--algorithms: belongs to --model"},
           {"plan --step STEP --workspace-limit 1MiB", "--workspace-limit: belongs to --model"},
           {"plan --step STEP --keep-algorithms", "--keep-algorithms: belongs to --model"},
           {"plan --step STEP --optimizer adam", "--optimizer: belongs to --model"},
           {"plan --step STEP --graph", "--graph: belongs to --model"},
           {"plan --step STEP --profile costs.json", "--profile: belongs to --model"},
           {"plan --step STEP --resume run.safetensors", "--resume: belongs to --model"},
           {"plan --step STEP --policy conv", "--policy conv: a learned step has neither"},
           {"plan --step STEP --policy dyn", "--policy dyn: a learned step has neither"},
           {"plan --step STEP --schedule S", "--schedule: schedules are for `vdnn replay`"},
           {"sweep --step STEP --precision fp32,bf16", "--precision: belongs to --model"},
           {"sweep --step STEP --policy optimal,conv", "--policy conv: a learned step has neither"},
           {"max-batch --step STEP --global-batch 64", "--global-batch: belongs to --model"},
           {"plan --step missing.json", "'missing.json' cannot be read"},
           {"plan --step STEP --json STEP", "is also an output"},
           {"train --step STEP --data synthetic --steps 1", "--step"},
           {"explain --step STEP", "--step"},
           {"profile --step STEP -o costs.json", "--step"}}) {
    json step = json::parse(std::ifstream(kUnet));
    write("STEP", step.dump());
    const CommandOutcome refused = run(arguments, "cd " + directory_.string() + " && ");
    EXPECT_EQ(refused.status, 2) << arguments;
    EXPECT_THAT(refused.log, HasSubstr(reason)) << arguments;
  }
}

TEST_F(StepCommand, ADamagedStepIsRefusedWithItsPlace) {
  json step = json::parse(std::ifstream(kUnet));
  step["events"][7]["in_use_bytes"] = 1;
  write("step.json", step.dump());
  const CommandOutcome refused = run("plan --step " + path("step.json"));
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.log,
              HasSubstr("step.json': learned step: event 7: 'in_use_bytes' 1 is less than the "));
}

}  // namespace
}  // namespace vdnn::step_command_test
