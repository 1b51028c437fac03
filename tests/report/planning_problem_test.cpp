// The lines of `vdnn plan --ops` agree with the tape and the planner's costs. From these lines alone, another
// planner computes the same memory and time.

#include "src/report/planning_problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/plan/residency.h"
#include "tests/report/json_schema.h"
#include "tests/report/reported_runs.h"
#include "vdnn/schedule_file.h"

namespace vdnn::testing {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> line_errors(const Json& line) {
  static const Json schema = read_json(std::string(VDNN_DOCS_DIRECTORY) + "/planning_problem.schema.json");
  return SchemaCheck::errors(schema, line);
}

// The lines as a reader collects them: {"device": line, "values": lines, "ops": lines}.
Json problem_of(const PlannedRun& run) {
  Json problem{{"values", Json::array()}, {"ops", Json::array()}};
  for (const auto& written : planning_problem(run)) {
    Json line = Json::parse(written.dump(-1, ' ', false, Json::error_handler_t::replace));
    line["schema"] = 1;  // JsonLines adds it
    EXPECT_THAT(line_errors(line), IsEmpty()) << line;
    if (line["type"] == "planning_device") {
      problem["device"] = line;
    } else {
      problem[line["type"] == "planning_value" ? "values" : "ops"].push_back(line);
    }
  }
  return problem;
}

PlannedRun clipped_run() {
  RunOptions options = reported_options(Policy::kOptimal);
  options.model = {.model = "resnet20", .batch = 32};
  options.training.clip_norm = 1.0F;
  options.training.ranks = 2;
  options.memory_bytes = std::uint64_t{48} << 20U;
  return plan_run(options);
}

TEST(PlanningProblem, HasALineForTheDeviceEachValueAndEachOp) {
  for (const PlannedRun& run :
       {clipped_run(), hostile_run(), zoo_run("googlenet", 8, Policy::kOffloadConv)}) {
    const Json problem = problem_of(run);
    EXPECT_EQ(problem["device"]["tape_fingerprint"], fingerprint(*run.tape));
    EXPECT_EQ(problem["device"]["device"], "sim:titan-x");
    EXPECT_EQ(problem["device"]["granule_bytes"], run.target.profile.granule_bytes);
    EXPECT_EQ(problem["device"]["values"], run.tape->values().size());
    EXPECT_EQ(problem["device"]["ops"], run.tape->ops().size());
    ASSERT_EQ(problem["values"].size(), run.tape->values().size());
    ASSERT_EQ(problem["ops"].size(), run.tape->ops().size());
    for (ValueId id = 0; id < problem["values"].size(); ++id) {
      EXPECT_EQ(problem["values"][id]["value"], id);
      EXPECT_EQ(problem["values"][id]["bytes"], run.tape->value(id).bytes);
      EXPECT_EQ(problem["values"][id]["persistent"], run.tape->value(id).persistent());
    }
  }
}

// Other planners may use algorithms that our policy did not choose.
TEST(PlanningProblem, AnOpHasAllItsAlgorithmsAndOneIsChosen) {
  const PlannedRun run = clipped_run();
  const Json problem = problem_of(run);
  std::size_t refused = 0;
  std::set<std::string> without_layer;
  for (OpId id = 0; id < problem["ops"].size(); ++id) {
    const Op& op = run.tape->op(id);
    const Json& line = problem["ops"][id];
    SCOPED_TRACE(op.name);
    EXPECT_EQ(line["op"], id);
    EXPECT_EQ(line["name"], op.name);
    EXPECT_EQ(line["reads"].get<std::vector<ValueId>>(), op.reads);
    EXPECT_EQ(line["writes"].get<std::vector<ValueId>>(), op.writes);
    EXPECT_EQ(line["collective"], op.collective());
    if (line["layer"].is_null()) {
      without_layer.insert(op.name);
    }
    ASSERT_EQ(line["algorithms"].size(), op.algorithms.size());
    for (std::uint32_t index = 0; index < op.algorithms.size(); ++index) {
      const Json& algorithm = line["algorithms"][index];
      EXPECT_EQ(algorithm["name"], op.algorithms[index].name);
      EXPECT_EQ(algorithm["workspace_bytes"], op.algorithms[index].workspace_bytes);
      EXPECT_EQ(algorithm["seconds"], op.collective() ? 0 : run.target.profile.seconds(op.cost_with(index)));
      EXPECT_EQ(algorithm["chosen"], index == run.schedule.algorithms[id]);
      refused += algorithm["chosen"] == true ? 0 : 1;
    }
  }
  EXPECT_GT(refused, 0U);
  EXPECT_THAT(without_layer, ::testing::IsSupersetOf({"metrics.reduce", "gradients.norm"}));
}

// The bytes in use while each op runs, from liveness, overwriting and workspace in the lines alone.
std::vector<std::uint64_t> bytes_by_op(const Json& problem) {
  std::vector<std::size_t> last_use(problem["values"].size());
  for (std::size_t op = 0; op < problem["ops"].size(); ++op) {
    for (const char* operands : {"reads", "writes"}) {
      for (const std::size_t value : problem["ops"][op][operands]) {
        last_use[value] = op;
      }
    }
  }
  const auto bytes_of = [&](std::size_t value) {
    return problem["values"][value]["bytes"].get<std::uint64_t>();
  };
  std::uint64_t persistent = 0;
  std::map<std::size_t, std::uint64_t> resident;  // for each value, the bytes of its block
  for (std::size_t value = 0; value < problem["values"].size(); ++value) {
    persistent += problem["values"][value]["persistent"] == true ? bytes_of(value) : 0;
    if (problem["values"][value]["loaded"] == true) {
      resident[value] = bytes_of(value);
    }
  }
  std::vector<std::uint64_t> bytes;
  for (std::size_t id = 0; id < problem["ops"].size(); ++id) {
    const Json& op = problem["ops"][id];
    for (const std::size_t value : op["writes"]) {
      if (problem["values"][value]["persistent"] == true) {
        continue;
      }
      const auto taken = std::ranges::find_if(op["may_overwrite"], [&](const Json& permission) {
        return permission["write"] == value && permission["taken"] == true;
      });
      if (taken == op["may_overwrite"].end()) {
        resident[value] = bytes_of(value);
      } else {
        const std::size_t read = (*taken)["read"];
        resident[value] = std::exchange(resident[read], 0);
      }
    }
    std::uint64_t sum = persistent;
    for (const auto& [value, block] : resident) {
      sum += block;
    }
    for (const Json& algorithm : op["algorithms"]) {
      sum += algorithm["chosen"] == true ? algorithm["workspace_bytes"].get<std::uint64_t>() : 0;
    }
    bytes.push_back(sum);
    std::erase_if(resident, [&](const auto& block) { return last_use[block.first] == id; });
  }
  return bytes;
}

TEST(PlanningProblem, SufficesToReckonTheMemoryOfNone) {
  for (const std::string model : {"resnet20", "googlenet", "alexnet", "unet"}) {
    SCOPED_TRACE(model);
    const PlannedRun run = zoo_run(model, 4, Policy::kOffloadNone);
    const std::vector<std::uint64_t> reckoned = bytes_by_op(problem_of(run));
    const std::vector<std::uint64_t> in_use = bytes_in_use(run.schedule);
    for (std::size_t at = 0; at < in_use.size(); ++at) {
      const Instruction& instruction = run.schedule.instructions[at];
      if (instruction.kind == InstructionKind::kLaunch) {
        EXPECT_EQ(reckoned[instruction.op], in_use[at]) << run.tape->op(instruction.op).name;
      }
    }
  }
}

TEST(PlanningProblem, SufficesToReckonTheTimeOfNone) {
  const PlannedRun run = zoo_run("resnet20", 32, Policy::kOffloadNone);
  const Json problem = problem_of(run);
  double computing = 0;
  for (const Json& op : problem["ops"]) {
    for (const Json& algorithm : op["algorithms"]) {
      computing += algorithm["chosen"] == true ? algorithm["seconds"].get<double>() : 0;
    }
  }
  EXPECT_NEAR(run.prediction.step_seconds - run.prediction.stall_seconds, computing, 1e-9);
}

// Every recomputed op of our plans must be among those that may be recomputed.
TEST(PlanningProblem, WhatIsRecomputedMayRunAgain) {
  const PlannedRun run = zoo_run("resnet20", 32, Policy::kOptimal, 0.4);
  ASSERT_GT(recomputed_ops(run.schedule), 0U);
  const Json problem = problem_of(run);
  for (const Instruction& instruction : run.schedule.instructions) {
    if (instruction.kind == InstructionKind::kRecompute) {
      EXPECT_EQ(problem["ops"][instruction.op]["may_run_again"], true);
    }
  }
  EXPECT_TRUE(
      std::ranges::any_of(problem["ops"], [](const Json& op) { return op["may_run_again"] == false; }));
}

// An addition of a value to itself may overwrite it through either read.
TEST(PlanningProblem, APermissionIsListedOnce) {
  NetworkBuilder net("doubled", {4, 3, 8, 8});
  const Tensor x = net.convolution("conv", net.input(),
                                   {.filters = 4, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}});
  net.softmax_cross_entropy("loss", net.fully_connected("fc", net.add("sum", x, x), {.outputs = 10}));
  const Json problem = problem_of(plan_run(std::move(net).build(), reported_options(Policy::kOffloadNone)));
  const auto sum =
      std::ranges::find_if(problem["ops"], [](const Json& op) { return op["name"] == "sum.forward"; });
  ASSERT_NE(sum, problem["ops"].end());
  ASSERT_EQ((*sum)["may_overwrite"].size(), 1U);
  EXPECT_EQ((*sum)["may_overwrite"][0]["taken"], true);
}

TEST(PlanningProblem, TheSchemaIsStrict) {
  const Json problem = problem_of(hostile_run());
  for (const Json& line : {problem["device"], problem["values"][0], problem["ops"][0]}) {
    for (const auto& [key, value] : line.items()) {
      Json without = line;
      without.erase(key);
      EXPECT_THAT(line_errors(without), Not(IsEmpty())) << key;
      Json wrong = line;
      wrong[key] = Json{{"x", 1}};
      EXPECT_THAT(line_errors(wrong), Not(IsEmpty())) << key;
    }
    Json unknown = line;
    unknown["colour"] = "red";
    EXPECT_THAT(line_errors(unknown), Not(IsEmpty()));
  }
}

}  // namespace
}  // namespace vdnn::testing
