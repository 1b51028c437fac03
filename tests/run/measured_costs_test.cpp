// Measured costs: the file, its refusals, and the effect on a plan.

#include "vdnn/measured_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/report/json_schema.h"
#include "tests/temporary_directory.h"
#include "vdnn/error.h"
#include "vdnn/learned_costs.h"
#include "vdnn/planned_run.h"

namespace vdnn::measured_costs_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::ordered_json;

RunOptions options(Policy policy = Policy::kOffloadNone) {
  return {.model = {.model = "lenet", .batch = 8}, .device = "cpu", .threads = 1, .policy = policy};
}

// Made-up costs: op n takes n milliseconds with its first algorithm, and each further algorithm takes n
// milliseconds longer.
MeasuredCosts made_up(const PlannedRun& run) {
  MeasuredCosts costs{.setting = run.measured_setting(),
                      .link_bytes_per_second = {.device_to_host = 4e9, .host_to_device = 5e9},
                      .link_bytes_per_second_both_ways = {.device_to_host = 2e9, .host_to_device = 3e9},
                      .launch_seconds = 2e-6};
  double op_seconds = 0;
  for (const Op& op : run.tape->ops()) {
    op_seconds += 1e-3;
    double seconds = 0;
    for (const Algorithm& algorithm : op.algorithms) {
      seconds += op_seconds;
      costs.ops[op.name][algorithm.name] =
          MeasuredTime{.seconds = seconds, .spread_seconds = 1e-5, .launches = 20};
    }
  }
  return costs;
}

// An op with several algorithms, no two of which have the same workspace.
const Op& op_with_a_choice(const Tape& tape) {
  return *std::ranges::find_if(tape.ops(), [](const Op& op) {
    return op.algorithms.size() > 1 &&
           op.algorithms.front().workspace_bytes != op.algorithms.back().workspace_bytes;
  });
}

std::string algorithm_of(const PlannedRun& run, const std::string& op) {
  const auto found = std::ranges::find(run.tape->ops(), op, &Op::name);
  return found->algorithms[run.plan.algorithms[static_cast<OpId>(found - run.tape->ops().begin())]].name;
}

template <class Error, class Action>
std::string refusal(const Action& action) {
  try {
    action();
    return "accepted";
  } catch (const Error& error) {
    return error.what();
  }
}

std::string refusal_of(const std::string& text) {
  return refusal<DataError>([&] { parse_measured_costs(text); });
}

// --- the file ----------------------------------------------------------------------------------------------

TEST(MeasuredCostsFile, IsReadAsItWasWritten) {
  MeasuredCosts costs = made_up(plan_run(options()));
  costs.link_gbytes_per_second = 0.3;
  costs.ops.begin()->second["too large"] = std::nullopt;
  const MeasuredCosts again = parse_measured_costs(to_text(costs));
  EXPECT_EQ(again.setting, costs.setting);
  EXPECT_EQ(again.ops, costs.ops);
  EXPECT_EQ(again.link_gbytes_per_second, costs.link_gbytes_per_second);
  EXPECT_EQ(again.launch_seconds, costs.launch_seconds);
  for (const CopyDirection direction : {CopyDirection::kDeviceToHost, CopyDirection::kHostToDevice}) {
    EXPECT_EQ(again.link_bytes_per_second[direction], costs.link_bytes_per_second[direction]);
    EXPECT_EQ(again.link_bytes_per_second_both_ways[direction],
              costs.link_bytes_per_second_both_ways[direction]);
  }
  EXPECT_EQ(to_text(again), to_text(costs));
}

TEST(MeasuredCostsFile, IsWhatTheSchemaSays) {
  const auto schema = testing::read_json(VDNN_DOCS_DIRECTORY "/measured_costs.schema.json");
  MeasuredCosts costs = made_up(plan_run(options()));
  costs.ops.begin()->second["too large"] = std::nullopt;
  EXPECT_THAT(testing::SchemaCheck::errors(schema, testing::Json::parse(to_text(costs))), IsEmpty());
}

Json written() {
  return Json::parse(to_text(made_up(plan_run(options()))));
}
constexpr const char* kTime = "/ops/fc1.bias.update/vdnn";

// Older programs refuse version 2 of the file, which added modelled costs.
TEST(MeasuredCostsFile, IsOfVersionTwoWhereSomeTimesWereReckoned) {
  MeasuredCosts costs = made_up(plan_run(options()));
  EXPECT_EQ(testing::Json::parse(to_text(costs))["schema"], 1);
  costs.ops.begin()->second.begin()->second->launches = 0;
  testing::Json json = testing::Json::parse(to_text(costs));
  EXPECT_EQ(json["schema"], 2);
  EXPECT_THAT(testing::SchemaCheck::errors(
                  testing::read_json(VDNN_DOCS_DIRECTORY "/measured_costs.schema.json"), json),
              IsEmpty());
  EXPECT_EQ(parse_measured_costs(json.dump()).ops, costs.ops);
  json["schema"] = 1;
  EXPECT_THAT(refusal_of(json.dump()), HasSubstr("'launches' must be at least 1"));
}

RunOptions on_sim(const std::string& device, Policy policy = Policy::kOffloadNone) {
  RunOptions simulated = options(policy);
  simulated.device = device;
  return simulated;
}

// A version of its own prevents programs from taking a model's predictions for measurements.
TEST(MeasuredCostsFile, IsOfVersionThreeWhereAllOfItIsModelled) {
  const MeasuredCosts costs = expected_costs(plan_run(on_sim("sim:h200")));
  EXPECT_TRUE(costs.modelled);
  const testing::Json json = testing::Json::parse(to_text(costs));
  EXPECT_EQ(json["schema"], 3);
  EXPECT_EQ(json["modelled"], true);
  const auto schema = testing::read_json(VDNN_DOCS_DIRECTORY "/measured_costs.schema.json");
  EXPECT_THAT(testing::SchemaCheck::errors(schema, json), IsEmpty());
  const MeasuredCosts again = parse_measured_costs(json.dump());
  EXPECT_TRUE(again.modelled);
  EXPECT_EQ(again.ops, costs.ops);
  EXPECT_EQ(to_text(again), to_text(costs));

  const auto expect_refused = [&](const testing::Json& file, const std::string& why) {
    EXPECT_THAT(refusal_of(file.dump()), HasSubstr(why));
    EXPECT_THAT(testing::SchemaCheck::errors(schema, file), ::testing::Not(IsEmpty())) << why;
  };
  testing::Json wrong = json;
  wrong["modelled"] = false;
  expect_refused(wrong, "'modelled' must be true");
  wrong.erase("modelled");
  expect_refused(wrong, "lacks 'modelled'");
  wrong = json;
  wrong["schema"] = 2;
  expect_refused(wrong, "unknown key 'modelled'");
  wrong = json;
  wrong["ops"]["fc1.bias.update"].begin().value()["launches"] = 20;
  EXPECT_THAT(refusal_of(wrong.dump()), HasSubstr("'launches' must be 0"));
}

TEST(MeasuredCostsFile, AKeyThatIsMissingIsNamed) {
  const Json whole = written();
  for (const auto& item : whole.items()) {
    Json without = whole;
    without.erase(item.key());
    EXPECT_THAT(refusal_of(without.dump()), HasSubstr("lacks '" + item.key() + "'"));
  }
  for (const std::string key : {"seconds", "spread_seconds", "launches"}) {
    Json without = whole;
    without[Json::json_pointer(kTime)].erase(key);
    EXPECT_THAT(refusal_of(without.dump()),
                HasSubstr("op 'fc1.bias.update', algorithm 'vdnn' lacks '" + key + "'"));
  }
}

TEST(MeasuredCostsFile, AKeyThatNobodyKnowsIsNamed) {
  for (const std::string& place : {std::string(), std::string(kTime)}) {
    Json with = written();
    with[Json::json_pointer(place + "/speed")] = 1;
    EXPECT_THAT(refusal_of(with.dump()), HasSubstr("unknown key 'speed'"));
  }
}

TEST(MeasuredCostsFile, AValueThatCannotBeIsNamed) {
  const Json whole = written();
  const auto expect_refused = [&](const std::string& place, const Json& value, const std::string& key) {
    Json with = whole;
    with[Json::json_pointer(place)] = value;
    EXPECT_THAT(refusal_of(with.dump()), HasSubstr("'" + key + "'")) << place << " " << value;
  };
  for (const auto& item : whole.items()) {
    const Json wrong = item.value().is_string() ? Json(1) : Json("fast");
    if (item.key() != "schema" && item.key() != "type") {
      expect_refused("/" + item.key(), wrong, item.key());
    }
  }
  for (const std::string key :
       {"classes", "batch", "threads", "feature_map_bytes", "persistent_bytes", "link_gbytes_per_s",
        "device_to_host_bytes_per_second", "host_to_device_bytes_per_second",
        "device_to_host_bytes_per_second_both_ways", "host_to_device_bytes_per_second_both_ways",
        "launch_seconds"}) {
    expect_refused("/" + key, -1, key);
  }
  for (const std::string key : {"model", "input", "device", "algorithms_source"}) {
    expect_refused("/" + key, "", key);
  }
  for (const std::string key : {"seconds", "spread_seconds", "launches"}) {
    expect_refused(kTime + ("/" + key), -1, key);
    expect_refused(kTime + ("/" + key), nullptr, key);
  }
  expect_refused(std::string(kTime) + "/seconds", 0, "seconds");
  expect_refused(std::string(kTime) + "/launches", 0, "launches");
  expect_refused("/threads", std::uint64_t{1} << 40U, "threads");
  expect_refused(kTime, 1, "vdnn");
  expect_refused("/ops/fc1.bias.update", 1, "fc1.bias.update");
  expect_refused("/ops/fc1.bias.update", Json::object(), "fc1.bias.update");
  expect_refused(kTime, nullptr, "fc1.bias.update");
}

TEST(MeasuredCostsFile, WhatIsNoneIsRefused) {
  EXPECT_THAT(refusal_of(""), HasSubstr("no JSON"));
  EXPECT_THAT(refusal_of("{\"schema\": 1"), HasSubstr("no JSON"));
  EXPECT_THAT(refusal_of("[]"), HasSubstr("not an object"));
  EXPECT_THAT(refusal_of("[[[[[[[]]]]]]]"), HasSubstr("nested too deep"));
  Json with = written();
  for (const int version : {0, 4}) {
    with["schema"] = version;
    EXPECT_THAT(refusal_of(with.dump()),
                HasSubstr("its schema is " + std::to_string(version) + "; known are 1 to 3"));
  }
  with = written();
  with["type"] = "engine timings";
  EXPECT_THAT(refusal_of(with.dump()), HasSubstr("its type is not 'measured costs'"));
  with = written();
  with["host_to_device_bytes_per_second_both_ways"] = 6e9;
  EXPECT_THAT(refusal_of(with.dump()), HasSubstr("must not exceed its rate one way"));
}

// --- the run that they belong to ---------------------------------------------------------------------------

TEST(MeasuredCosts, OfAnotherSettingAreRefusedByTheNameOfTheKey) {
  const MeasuredCosts costs = made_up(plan_run(options()));
  const MeasuredSetting here = costs.setting;
  EXPECT_NO_THROW(require_measured_of(costs, here));
  const auto expect_refused = [&](const std::string& key, auto MeasuredSetting::*field, auto value) {
    MeasuredSetting other = here;
    other.*field = value;
    EXPECT_THAT(refusal<InvalidArgument>([&] { require_measured_of(costs, other); }),
                HasSubstr("'" + key + "' is "));
  };
  expect_refused("model", &MeasuredSetting::model, "resnet20");
  expect_refused("input", &MeasuredSetting::input, "1x32x32");
  expect_refused("classes", &MeasuredSetting::classes, 7);
  expect_refused("batch", &MeasuredSetting::batch, 9);
  expect_refused("device", &MeasuredSetting::device, "NVIDIA H200");
  expect_refused("threads", &MeasuredSetting::threads, 2);
  expect_refused("algorithms_source", &MeasuredSetting::algorithms_source, "onednn 3.0.0");
  expect_refused("feature_map_bytes", &MeasuredSetting::feature_map_bytes, 1U);
  expect_refused("persistent_bytes", &MeasuredSetting::persistent_bytes, 1U);
}

TEST(MeasuredCosts, OfAnotherTapeAreRefusedByTheNameOfOpOrAlgorithm) {
  const PlannedRun run = plan_run(options());
  const Op& op = op_with_a_choice(*run.tape);
  const auto refused = [&](const MeasuredCosts& costs) {
    return refusal<InvalidArgument>([&] { with_measured_costs(*run.tape, costs); });
  };
  MeasuredCosts costs = made_up(run);
  costs.ops["conv9.forward"] = costs.ops[op.name];
  EXPECT_THAT(refused(costs), HasSubstr("no op 'conv9.forward'"));
  costs = made_up(run);
  costs.ops.erase(op.name);
  EXPECT_THAT(refused(costs), HasSubstr("nothing was measured of op '" + op.name + "'"));
  costs = made_up(run);
  costs.ops[op.name]["guessing"] = MeasuredTime{.seconds = 1};
  EXPECT_THAT(refused(costs), HasSubstr("algorithm 'guessing': there is no such algorithm"));
  costs = made_up(run);
  costs.ops[op.name].erase(op.algorithms.back().name);
  EXPECT_THAT(refused(costs),
              AllOf(HasSubstr(op.name), HasSubstr("was not measured with '" + op.algorithms.back().name)));
}

TEST(MeasuredCosts, LeaveEverythingElseOfATapeAlone) {
  const PlannedRun run = plan_run(options());
  const std::shared_ptr<const Tape> tape = with_measured_costs(*run.tape, made_up(run));
  ASSERT_EQ(tape->ops().size(), run.tape->ops().size());
  for (OpId id = 0; id < tape->ops().size(); ++id) {
    const Op& with = tape->op(id);
    const Op& without = run.tape->op(id);
    EXPECT_EQ(with.name, without.name);
    EXPECT_EQ(with.reads, without.reads);
    EXPECT_EQ(with.writes, without.writes);
    for (std::uint32_t index = 0; index < without.algorithms.size(); ++index) {
      EXPECT_EQ(with.algorithms[index].name, without.algorithms[index].name);
      EXPECT_EQ(with.algorithms[index].workspace_bytes, without.algorithms[index].workspace_bytes);
      EXPECT_EQ(with.cost_with(index).flops, without.cost_with(index).flops);
      EXPECT_NEAR(with.cost_with(index).seconds, (index + 1) * (id + 1) * 1e-3, 1e-9);
    }
  }
  EXPECT_EQ(tape->losses(), run.tape->losses());
  EXPECT_EQ(tape->loss_weight(0), run.tape->loss_weight(0));
  EXPECT_TRUE(std::ranges::equal(tape->results(), run.tape->results()));
  EXPECT_EQ(tape->weight_bytes(), run.tape->weight_bytes());
}

// --- plans -------------------------------------------------------------------------------------------------

class ProfiledRun : public testing::TemporaryDirectory {
 protected:
  RunOptions with(const MeasuredCosts& costs, Policy policy = Policy::kOffloadNone) const {
    write("profile.json", to_text(costs));
    RunOptions profiled = options(policy);
    profiled.profile = directory_ / "profile.json";
    return profiled;
  }
};

std::uint64_t image_bytes(const PlannedRun& run) {
  return run.tape->value(run.tape->inputs()[0]).bytes;
}

// No value is offloaded. A step is the copy of its images and then its n ops, which take 1 to n milliseconds.
// The copy cannot start earlier, since the last op of the previous step reads the images' memory.
TEST_F(ProfiledRun, IsPredictedToTakeWhatWasMeasured) {
  const PlannedRun plain = plan_run(options());
  MeasuredCosts costs = made_up(plain);
  const PlannedRun run = plan_run(with(costs));
  const auto ops = static_cast<double>(run.tape->ops().size());
  const double computing = 1e-3 * ops * (ops + 1) / 2;
  const double loading = 2e-6 + static_cast<double>(image_bytes(run)) / 5e9;
  EXPECT_NEAR(run.prediction.step_seconds, loading + computing, 1e-9);
  EXPECT_NEAR(lower_bound_step_seconds(run), computing, 1e-9);
  EXPECT_EQ(run.prediction.peak_bytes, plain.prediction.peak_bytes);
  costs.ops.at("fc1.forward").begin()->second->seconds += 0.25;
  EXPECT_NEAR(plan_run(with(costs)).prediction.step_seconds, run.prediction.step_seconds + 0.25, 1e-9);
}

// The ops take hardly any time. So a step consists of its copies (the load of the images, the offloads and
// the prefetches), each after its waits.
TEST_F(ProfiledRun, MovesAtTheRatesThatWereMeasured) {
  MeasuredCosts costs = made_up(plan_run(options()));
  for (auto& [op, times] : costs.ops) {
    for (auto& [algorithm, time] : times) {
      time->seconds = 1e-9;
    }
  }
  costs.launch_seconds = 0;
  costs.link_bytes_per_second = {.device_to_host = 4e6, .host_to_device = 4e6};
  costs.link_bytes_per_second_both_ways = costs.link_bytes_per_second;
  const PlannedRun run = plan_run(with(costs, Policy::kOffloadAll));
  const std::uint64_t moved = 2 * offload_bytes(*run.tape, run.schedule) + image_bytes(run);
  EXPECT_NEAR(run.prediction.step_seconds, static_cast<double>(moved) / 4e6, 1e-5);
  EXPECT_EQ(run.target.profile.launch_seconds, 0);
  EXPECT_EQ(run.target.profile.link_bytes_per_second.host_to_device, 4e6);
}

TEST_F(ProfiledRun, TakesTheFastestAlgorithmUnlessAnotherOneIsAskedFor) {
  const PlannedRun plain = plan_run(options());
  const Op& op = op_with_a_choice(*plain.tape);
  MeasuredCosts costs = made_up(plain);
  const std::string fastest = op.algorithms.back().name;
  costs.ops.at(op.name).at(fastest)->seconds = 1e-6;
  RunOptions profiled = with(costs);
  const PlannedRun run = plan_run(profiled);
  EXPECT_NE(algorithm_of(plain, op.name), fastest);
  EXPECT_EQ(algorithm_of(run, op.name), fastest);
  EXPECT_EQ(run.algorithms_source(), "profile " + profiled.profile->string());
  EXPECT_EQ(run.catalog->algorithms_source(), plain.algorithms_source());

  profiled.algorithms = AlgorithmPreference::kMemory;
  RunOptions little = options();
  little.algorithms = AlgorithmPreference::kMemory;
  EXPECT_EQ(plan_run(profiled).plan.algorithms, plan_run(little).plan.algorithms);

  RunOptions recorded = with(costs);
  for (const Op& each : plain.tape->ops()) {
    recorded.recorded_algorithms.emplace(each.name, algorithm_of(plain, each.name));
  }
  EXPECT_EQ(plan_run(recorded).plan.algorithms, plain.plan.algorithms);
}

TEST_F(ProfiledRun, TakesNothingThatDidNotFitWhenItWasMeasured) {
  const PlannedRun plain = plan_run(options());
  const Op& op = op_with_a_choice(*plain.tape);
  MeasuredCosts costs = made_up(plain);
  costs.ops.at(op.name).at(op.algorithms.front().name) = std::nullopt;
  const PlannedRun run = plan_run(with(costs));
  EXPECT_EQ(algorithm_of(run, op.name), op.algorithms[1].name);
  const Op& with_costs = *std::ranges::find(run.tape->ops(), op.name, &Op::name);
  for (std::uint32_t index = 1; index < op.algorithms.size(); ++index) {
    EXPECT_GT(with_costs.cost_with(0).seconds, with_costs.cost_with(index).seconds);
  }
}

TEST_F(ProfiledRun, IsRefusedWithTheNameOfTheFile) {
  const MeasuredCosts costs = made_up(plan_run(options()));
  RunOptions other = with(costs);
  other.model.batch = 16;
  EXPECT_THAT(refusal<InvalidArgument>([&] { plan_run(other); }),
              AllOf(HasSubstr("profile.json"), HasSubstr("'batch' is 8 in the file and would be 16 here")));
  other = with(costs);
  other.training.optimizer = AdamSpec{};
  EXPECT_THAT(refusal<InvalidArgument>([&] { plan_run(other); }), HasSubstr("'persistent_bytes'"));
  other = with(costs);
  other.device = "sim:titan-x";
  EXPECT_THAT(refusal<InvalidArgument>([&] { plan_run(other); }),
              HasSubstr("'device' is cpu in the file and would be titan-x here"));
  other = with(costs);
  other.training.clip_norm = 1;
  EXPECT_THAT(refusal<InvalidArgument>([&] { plan_run(other); }), HasSubstr("nothing was measured of op"));
  other.profile = directory_ / "nothing.json";
  EXPECT_THAT(refusal<DataError>([&] { plan_run(other); }), HasSubstr("nothing.json' cannot be read"));
  write("profile.json", "{}");
  other.profile = directory_ / "profile.json";
  EXPECT_THAT(refusal<DataError>([&] { plan_run(other); }),
              AllOf(HasSubstr("profile.json"), HasSubstr("lacks 'schema'")));
}

TEST_F(ProfiledRun, StandsForTheDeviceOnSimToo) {
  RunOptions simulated = with(made_up(plan_run(options())));
  const double on_cpu = plan_run(simulated).prediction.step_seconds;
  simulated.device = "sim:cpu";
  EXPECT_EQ(plan_run(simulated).prediction.step_seconds, on_cpu);
}

// --- costs of simulated devices ----------------------------------------------------------------------------

class ModelledRun : public ProfiledRun {
 protected:
  // The run with its own modelled costs as the profile.
  RunOptions with_its_own(RunOptions simulated) const {
    write("profile.json", to_text(expected_costs(plan_run(simulated))));
    simulated.profile = directory_ / "profile.json";
    return simulated;
  }
};

void expect_the_same_plans(const PlannedRun& run, const PlannedRun& other) {
  EXPECT_EQ(run.plan.algorithms, other.plan.algorithms);
  EXPECT_EQ(run.schedule.instructions, other.schedule.instructions);
  EXPECT_EQ(run.prediction.step_seconds, other.prediction.step_seconds);
  EXPECT_EQ(run.prediction.stall_seconds, other.prediction.stall_seconds);
  EXPECT_EQ(run.prediction.peak_bytes, other.prediction.peak_bytes);
  EXPECT_EQ(run.smallest_peak_bytes, other.smallest_peak_bytes);
  EXPECT_EQ(lower_bound_step_seconds(run), lower_bound_step_seconds(other));
}

// The prediction is the same to the last bit under every policy.
TEST_F(ModelledRun, IsPredictedAsWithoutAProfile) {
  for (const std::string device : {"sim:titan-x", "sim:h200", "sim:cpu"}) {
    for (const Policy policy : {Policy::kBaseline, Policy::kOffloadNone, Policy::kOffloadAll,
                                Policy::kOffloadConv, Policy::kDynamic, Policy::kOptimal}) {
      SCOPED_TRACE(device + ", " + to_string(policy));
      RunOptions simulated = on_sim(device, policy);
      simulated.model = {.model = "alexnet", .batch = 8};
      simulated.memory_bytes = std::uint64_t{1} << 30U;
      const PlannedRun run = plan_run(with_its_own(simulated));
      EXPECT_TRUE(run.measured && run.measured->modelled);
      expect_the_same_plans(run, plan_run(simulated));
    }
  }
}

TEST_F(ModelledRun, SharesALinkAsWithoutAProfile) {
  RunOptions simulated = on_sim("sim:a100", Policy::kOffloadAll);
  const double alone = plan_run(simulated).prediction.step_seconds;
  simulated.link_shared_by = 8;
  const PlannedRun shared = plan_run(simulated);
  EXPECT_GT(shared.prediction.step_seconds, alone);
  expect_the_same_plans(plan_run(with_its_own(simulated)), shared);
}

TEST_F(ModelledRun, GoesByTheTimesThatItIsGiven) {
  MeasuredCosts costs = expected_costs(plan_run(on_sim("sim:h200")));
  for (auto& [op, times] : costs.ops) {
    for (auto& [algorithm, time] : times) {
      time->seconds += 1;
    }
  }
  write("profile.json", to_text(costs));
  RunOptions slower = on_sim("sim:h200");
  slower.profile = directory_ / "profile.json";
  const PlannedRun run = plan_run(slower);
  EXPECT_GT(run.prediction.step_seconds, static_cast<double>(run.tape->ops().size()));
}

// Only policies that choose by time use modelled times of algorithms. The others keep the library's order,
// since the library knows its devices better.
TEST_F(ModelledRun, ChangesAlgorithmsOnlyUnderPoliciesThatChooseByTime) {
  RunOptions simulated = on_sim("sim:titan-x");
  const PlannedRun plain = plan_run(simulated);
  const Op& op = op_with_a_choice(*plain.tape);
  MeasuredCosts costs = expected_costs(plain);
  costs.ops.at(op.name).at(op.algorithms.back().name)->seconds = 1e-9;
  write("profile.json", to_text(costs));
  simulated.profile = directory_ / "profile.json";
  EXPECT_EQ(algorithm_of(plan_run(simulated), op.name), op.algorithms.front().name);
  simulated.policy = Policy::kOptimal;
  EXPECT_EQ(algorithm_of(plan_run(simulated), op.name), op.algorithms.back().name);
}

// The number of this machine's cores does not matter to a simulated GPU.
TEST_F(ModelledRun, OfAGpuIgnoresTheNumberOfThreads) {
  RunOptions simulated = with_its_own(on_sim("sim:h200"));
  simulated.threads = 3;
  EXPECT_NO_THROW(plan_run(simulated));
  simulated = with_its_own(on_sim("sim:cpu"));
  simulated.threads = 3;
  EXPECT_THAT(refusal<InvalidArgument>([&] { plan_run(simulated); }), HasSubstr("'threads'"));
}

TEST_F(ModelledRun, IsRefusedForARealDevice) {
  RunOptions real = with_its_own(on_sim("sim:cpu"));
  real.device = "cpu";
  EXPECT_THAT(refusal<InvalidArgument>([&] { plan_run(real); }),
              AllOf(HasSubstr("profile.json"), HasSubstr("modelled for a simulated cpu")));
}

}  // namespace
}  // namespace vdnn::measured_costs_test
