// The vdnn command as a user meets it: run as a process, judged by its exit status and what it prints.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/report/json_schema.h"
#include "tests/temporary_directory.h"

namespace vdnn {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

struct Outcome {
  int status = -1;
  std::string out;
  std::string log;  // standard error
};

class CliTest : public testing::TemporaryDirectory {
 protected:
  std::string path(const std::string& name) const { return (directory_ / name).string(); }

  Outcome run(const std::string& arguments) const {
    const std::string command =
        std::string(VDNN_COMMAND) + " " + arguments + " 2>" + path("standard-error") + " </dev/null";
    FILE* pipe = popen(command.c_str(), "r");
    Outcome outcome;
    std::array<char, 4096> buffer{};
    while (const std::size_t bytes = fread(buffer.data(), 1, buffer.size(), pipe)) {
      outcome.out.append(buffer.data(), bytes);
    }
    const int status = pclose(pipe);
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    outcome.log = read("standard-error");
    return outcome;
  }

  static json last_line(const std::string& text) {
    const std::size_t end = text.find_last_not_of('\n');
    const std::size_t begin = text.rfind('\n', end);
    return json::parse(text.substr(begin == std::string::npos ? 0 : begin + 1));
  }

  json plan(const std::string& arguments) const {
    const Outcome outcome = run("plan --json /dev/stdout " + arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.log;
    return last_line(outcome.out);
  }

  void expect_obeys_schema(const json& summary) const {
    const auto schema = testing::read_json(std::string(VDNN_DOCS_DIRECTORY) + "/summary.schema.json");
    EXPECT_THAT(testing::SchemaCheck::errors(schema, summary), ::testing::IsEmpty()) << summary.dump(1);
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

TEST_F(CliTest, OneGranuleLessThanTheSmallestBudgetDoesNotFitAndSaysWhatWould) {
  constexpr std::uint64_t kGranule = 65536;
  for (const std::string policy : {"baseline", "none", "conv", "all"}) {
    const std::uint64_t smallest =
        plan("--model lenet --batch 8 --policy " + policy)["smallest_budget_bytes"];
    const std::string train = kTrain + "--policy " + policy + " --memory ";
    EXPECT_EQ(run(train + std::to_string(smallest)).status, 0) << policy;
    const Outcome less = run(train + std::to_string(smallest - kGranule));
    EXPECT_EQ(less.status, 3) << policy << less.log;
    EXPECT_THAT(less.log, HasSubstr("smallest_budget_bytes is " + std::to_string(smallest)));
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

TEST_F(CliTest, AutoOffloadsOnlyAsMuchAsTheBudgetAsksFor) {
  const auto policy_at = [&](std::uint64_t budget) {
    return plan("--model fashion-vgg --batch 8 --memory " + std::to_string(budget))["policy"];
  };
  const auto smallest = [&](const std::string& policy) -> std::uint64_t {
    return plan("--model fashion-vgg --batch 8 --policy " + policy)["smallest_budget_bytes"];
  };
  ASSERT_LT(smallest("conv"), smallest("none"));
  ASSERT_LT(smallest("all"), smallest("conv"));
  EXPECT_EQ(policy_at(smallest("none")), "none");
  EXPECT_EQ(policy_at(smallest("conv")), "conv");
  EXPECT_EQ(policy_at(smallest("all")), "all");
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

TEST_F(CliTest, AStoredScheduleReplaysOnCpuAndOnSim) {
  const std::string schedule = path("schedule.json");
  ASSERT_EQ(run("plan --model lenet --batch 8 --policy all --schedule " + schedule).status, 0);
  const Outcome on_cpu = run("replay " + schedule + " --steps 2 --json " + path("cpu.json"));
  ASSERT_EQ(on_cpu.status, 0) << on_cpu.log;
  const Outcome trained = run(kTrain + "--momentum 0.9 --lr 0.01 --json " + path("train.json"));
  ASSERT_EQ(trained.status, 0) << trained.log;
  // The same seed, data and steps: a replay is the same computation.
  EXPECT_EQ(last_line(read("cpu.json"))["weights_sha256"], last_line(read("train.json"))["weights_sha256"]);
  const Outcome on_sim = run("replay " + schedule + " --device sim:titan-x --json " + path("sim.json"));
  ASSERT_EQ(on_sim.status, 0) << on_sim.log;
  EXPECT_EQ(last_line(read("sim.json"))["device"], "sim:titan-x");
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
    EXPECT_THAT(tracks, ::testing::IsSupersetOf({"compute", "offload", "prefetch", "load"})) << name;
    EXPECT_THAT(counters, ::testing::IsSupersetOf({"device memory in use", "page-locked memory in use"}))
        << name;
  }
}

// --- bad input: exit status 2 and a message that names what is wrong
// --------------------------------------------

struct BadInput {
  const char* name;
  const char* arguments;
  const char* message;
};

class BadInputTest : public CliTest, public ::testing::WithParamInterface<BadInput> {};

TEST_P(BadInputTest, ExitsWithStatusTwoAndNamesIt) {
  const Outcome outcome = run(GetParam().arguments);
  EXPECT_EQ(outcome.status, 2) << outcome.log;
  EXPECT_THAT(outcome.log, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Cli, BadInputTest,
    ::testing::Values(
        BadInput{"NoCommand", "", "train"}, BadInput{"UnknownCommand", "fly", "fly"},
        BadInput{"UnknownOption", "plan --model lenet --colour red", "--colour"},
        BadInput{"NoModel", "plan", "--model"}, BadInput{"UnknownModel", "plan --model lenin", "fashion-vgg"},
        BadInput{"UnknownPolicy", "plan --model lenet --policy most", "baseline, none, all, conv"},
        BadInput{"LaterPolicy", "plan --model lenet --policy optimal", "this version does not have it"},
        BadInput{"UnknownPreference", "plan --model lenet --algorithms fast", "memory, performance"},
        BadInput{"UnknownDevice", "plan --model lenet --device tpu", "sim:NAME"},
        BadInput{"NoCudaYet", "plan --model lenet --device cuda:0", "no CUDA driver"},
        BadInput{"UnknownProfile", "plan --model lenet --device sim:abacus", "titan-x"},
        BadInput{"UnknownOptimizer", "plan --model lenet --optimizer newton", "sgd"},
        BadInput{"LaterOptimizer", "plan --model lenet --optimizer adam", "this version does not have it"},
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
        BadInput{"NoDuration", "train --model lenet --data synthetic", "--epochs"},
        BadInput{"StepsOfZero", "train --model lenet --data synthetic --steps 0", "--steps"},
        BadInput{"TwoDurations", "train --model lenet --data synthetic --steps 1 --epochs 1", "excludes"},
        BadInput{"EmptySize", "plan --model lenet --memory ''", "--memory"},
        BadInput{"RateIsNoNumber", "train --model lenet --data synthetic --steps 1 --lr nan", "--lr"},
        BadInput{"TooManyThreads", "plan --model lenet --threads 40000", "--threads"},
        BadInput{"ThreadsOfZero", "plan --model lenet --threads 0", "--threads"},
        BadInput{"MoreThanTheAddressSpace", "plan --model lenet --device cpu --memory 200TiB", "--memory"},
        BadInput{"TwoOutputsInOneFile", "plan --model lenet --json /dev/null --trace /dev/null",
                 "two outputs"},
        BadInput{"NoData", "train --model lenet --steps 1", "--data"},
        BadInput{"UnknownData", "train --model lenet --data mnist-of-letters --steps 1", "fashion-mnist"},
        BadInput{"Cifar10OfAnotherShape", "train --model lenet --data cifar10:/tmp --steps 1", "3x32x32"},
        BadInput{"DataMissing", "train --model lenet --data fashion-mnist:/nowhere --steps 1", "/nowhere"},
        BadInput{"DataOfAnotherShape",
                 "train --model fashion-vgg --input 3x32x32 --data fashion-mnist --steps 1", "1x28x28"},
        BadInput{"TrainOnSim", "train --model lenet --data synthetic --steps 1 --device sim:h200", "plan"},
        BadInput{"LinkOfZero", "train --model lenet --data synthetic --steps 1 --link-gbytes-per-s 0",
                 "link"},
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
  for (const std::string option : {"--json", "--trace"}) {
    // So many steps that the test would time out if they were run.
    const Outcome outcome = run("train --model fashion-vgg --data synthetic --steps 1000000 " + option + " " +
                                path("file/out.json"));
    EXPECT_EQ(outcome.status, 2) << option;
    EXPECT_THAT(outcome.log, HasSubstr(path("file")));
  }
  EXPECT_EQ(run("plan --model lenet --schedule " + path("missing/schedule.json")).status, 2);
  EXPECT_EQ(read("file"), "in the way");
}

}  // namespace
}  // namespace vdnn
