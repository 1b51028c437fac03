// Checks the lines of --json against docs/summary.schema.json and docs/step.schema.json.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/report/json_schema.h"

namespace vdnn::testing::summary_schema_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Json schema() {
  return read_json(std::string(VDNN_DOCS_DIRECTORY) + "/summary.schema.json");
}

Json common_part() {
  return {{"schema", 1},
          {"type", "summary"},
          {"model", "vgg16"},
          {"batch", 64},
          {"devices", 4},
          {"machines", 2},
          {"global_batch", 512},
          {"device", "cpu"},
          {"simulated", false},
          {"threads", 2},
          {"policy", "conv"},
          {"algorithms", "performance"},
          {"seed", 1},
          {"algorithms_source", "onednn 2.6.3"},
          {"precision", "fp32"},
          {"product_precision", {{"convolutions", "tf32"}, {"matrix_products", "fp32"}}},
          {"engine_trials", {{"convolutions", 5}, {"engines", 12}, {"untimed", 1}, {"seconds", 1.5}}},
          {"budget_bytes", std::uint64_t{12} << 30},
          {"host_budget_bytes", 1 << 30},
          {"fits", true},
          {"smallest_budget_bytes", 65536},
          {"peak_bytes", 65536},
          {"average_bytes", 4096},
          {"library_bytes", 0},
          {"host_bytes", 4096},
          {"baseline_peak_bytes", 131072},
          {"paper_baseline_bytes", 131072},
          {"feature_map_bytes", 4096},
          {"weight_bytes", 4096},
          {"workspace_bytes", 0},
          {"offload_bytes_per_step", 4096},
          {"recomputed_ops", 0},
          {"options",
           {{"model", "vgg16"},
            {"step", nullptr},
            {"input", "3x224x224"},
            {"classes", 1000},
            {"batch", 64},
            {"device", "cpu"},
            {"memory", "12884901888"},
            {"host_memory", "1073741824"},
            {"link_shared_by", nullptr},
            {"devices", 1},
            {"machines", 1},
            {"accumulate", 1},
            {"bucket", "26214400"},
            {"reduce_precision", "fp32"},
            {"sync_bn", false},
            {"network_gbytes_per_s", 12.5},
            {"threads", 2},
            {"policy", "conv"},
            {"algorithms", "performance"},
            {"workspace_limit", nullptr},
            {"keep_algorithms", false},
            {"tf32", false},
            {"fp32", false},
            {"precision", nullptr},
            {"fp32_layers", nullptr},
            {"loss_scale", nullptr},
            {"engine_timings", nullptr},
            {"engine_trial_seconds", nullptr},
            {"profile", nullptr},
            {"optimizer", "sgd"},
            {"momentum", 0.9},
            {"beta1", nullptr},
            {"beta2", nullptr},
            {"epsilon", nullptr},
            {"weight_decay", 0.0},
            {"clip_norm", nullptr},
            {"graph", false},
            {"seed", 1},
            {"resume", nullptr}}}};
}

Json plan_summary() {
  Json summary = common_part();
  summary.update({{"rates", "assumed"},
                  {"predicted_step_seconds", 0.5},
                  {"predicted_micro_step_seconds", 0.0},
                  {"predicted_update_seconds", 0.5},
                  {"predicted_images_per_second", 1024.0},
                  {"predicted_efficiency", 0.9},
                  {"predicted_reduce_seconds", 0.1},
                  {"predicted_exposed_reduce_seconds", 0.05},
                  {"oracle_step_seconds", 0.25},
                  {"lower_bound_step_seconds", 0.1}});
  return summary;
}

Json train_summary() {
  Json summary = common_part();
  summary.update({{"rank_peak_bytes", {65536}},
                  {"predicted_peak_bytes", 65536},
                  {"step_seconds", 0.5},
                  {"stall_seconds", 0.0},
                  {"images_per_second", 128.0},
                  {"loss_scale", nullptr},
                  {"skipped_steps", nullptr},
                  {"loss", 2.3},
                  {"test_accuracy", 0.9},
                  {"weights_sha256", std::string(64, '0')},
                  {"system_allocations_after_first_step", 0}});
  summary["options"].update({{"data", "synthetic"},
                             {"augment", false},
                             {"crop_padding", nullptr},
                             {"lr", 0.01},
                             {"lr_schedule", "constant"},
                             {"epochs", nullptr},
                             {"steps", 100},
                             {"link_gbytes_per_s", nullptr},
                             {"deterministic", false},
                             {"save", nullptr},
                             {"save_every", nullptr},
                             {"find_nan", false},
                             {"allow_nan", false},
                             {"check_ranks", nullptr},
                             {"replan_after", nullptr},
                             {"replan_every", nullptr},
                             {"replan_algorithms", false},
                             {"learned", nullptr},
                             {"progress_every", 30},
                             {"metrics_port", nullptr},
                             {"metrics_address", nullptr},
                             {"tensorboard", nullptr}});
  return summary;
}

std::vector<std::string> errors(const Json& summary) {
  return SchemaCheck::errors(schema(), summary);
}

TEST(SummarySchema, AcceptsWhatTheCommandsWrite) {
  EXPECT_THAT(errors(plan_summary()), IsEmpty());
  EXPECT_THAT(errors(train_summary()), IsEmpty());
  Json unevaluated = train_summary();
  unevaluated.erase("test_accuracy");
  EXPECT_THAT(errors(unevaluated), IsEmpty());
  Json diverged = train_summary();
  diverged["loss"] = nullptr;
  EXPECT_THAT(errors(diverged), IsEmpty());
}

TEST(SummarySchema, EveryOtherKeyIsRequired) {
  for (const Json& summary : {plan_summary(), train_summary()}) {
    for (const auto& [key, value] : summary.items()) {
      Json without = summary;
      without.erase(key);
      EXPECT_EQ(errors(without).empty(), key == "test_accuracy") << key;
    }
  }
}

TEST(SummarySchema, EveryKeyHasAType) {
  for (const Json& summary : {plan_summary(), train_summary()}) {
    for (const auto& [key, value] : summary.items()) {
      Json wrong = summary;
      wrong[key] = Json::array();
      EXPECT_THAT(errors(wrong), Contains(HasSubstr("/" + key + ":"))) << key;
    }
  }
}

TEST(SummarySchema, EveryOptionIsRequiredAndHasAType) {
  for (const Json& summary : {plan_summary(), train_summary()}) {
    for (const auto& [key, value] : summary["options"].items()) {
      Json without = summary;
      without["options"].erase(key);
      EXPECT_THAT(errors(without), Not(IsEmpty())) << key;
      Json wrong = summary;
      wrong["options"][key] = Json::array();
      EXPECT_THAT(errors(wrong), Contains(HasSubstr("/options/" + key + ":"))) << key;
    }
  }
  Json unknown = plan_summary();
  unknown["options"]["colour"] = "red";
  EXPECT_THAT(errors(unknown), Contains("/options/colour: must not be there"));
  Json training_in_a_plan = plan_summary();
  training_in_a_plan["options"]["lr"] = 0.1;
  EXPECT_THAT(errors(training_in_a_plan), Not(IsEmpty()));
}

TEST(SummarySchema, RejectsWhatMustNotBeThere) {
  Json unknown = plan_summary();
  unknown["peak"] = 1;
  EXPECT_THAT(errors(unknown), Contains("/peak: must not be there"));

  Json both = plan_summary();
  both.update(train_summary());
  EXPECT_THAT(errors(both), Not(IsEmpty()));
  EXPECT_THAT(errors(common_part()), Not(IsEmpty()));

  Json measured_plan = plan_summary();
  measured_plan["test_accuracy"] = 0.5;
  EXPECT_THAT(errors(measured_plan), Not(IsEmpty()));
}

TEST(SummarySchema, RejectsValuesThatCannotBe) {
  const std::vector<std::pair<const char*, Json>> values{
      {"schema", 2},       {"type", "step"},
      {"batch", 0},        {"policy", "auto"},
      {"algorithms", "x"}, {"peak_bytes", -1},
      {"peak_bytes", 0.5}, {"fits", 1},
      {"seed", -1},        {"predicted_step_seconds", -0.5}};
  for (const auto& [key, value] : values) {
    Json wrong = plan_summary();
    wrong[key] = value;
    EXPECT_THAT(errors(wrong), Not(IsEmpty())) << key << " = " << value;
  }
}

// --- lines of the type "step" ------------------------------------------------------------------------------

Json step_line() {
  return {{"schema", 1},
          {"type", "step"},
          {"step", 1},
          {"loss", 2.3},
          {"images_per_second", 17.5},
          {"stall_fraction", 0.0},
          {"loss_scale", nullptr},
          {"skipped_steps", nullptr}};
}

std::vector<std::string> step_errors(const Json& line) {
  return SchemaCheck::errors(read_json(std::string(VDNN_DOCS_DIRECTORY) + "/step.schema.json"), line);
}

TEST(StepSchema, WantsEveryKeyOfItsType) {
  EXPECT_THAT(step_errors(step_line()), IsEmpty());
  Json untimed = step_line();
  untimed["stall_fraction"] = nullptr;
  EXPECT_THAT(step_errors(untimed), IsEmpty());
  Json diverged = step_line();
  diverged["loss"] = nullptr;
  EXPECT_THAT(step_errors(diverged), IsEmpty());
  const Json line = step_line();
  for (const auto& [key, value] : line.items()) {
    Json without = step_line();
    without.erase(key);
    EXPECT_THAT(step_errors(without), Not(IsEmpty())) << key;
    Json wrong = step_line();
    wrong[key] = Json::array();
    EXPECT_THAT(step_errors(wrong), Contains(HasSubstr("/" + key + ":"))) << key;
  }
  Json unknown = step_line();
  unknown["epoch"] = 1;
  EXPECT_THAT(step_errors(unknown), Contains("/epoch: must not be there"));
}

}  // namespace
}  // namespace vdnn::testing::summary_schema_test
