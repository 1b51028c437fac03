// Every network of the zoo, at its publication's size, on every catalog: it lowers, is planned under every
// policy, and the checker finds nothing wrong with the schedule.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <memory>
#include <string>

#include "vdnn/checker.h"
#include "vdnn/classic_catalog.h"
#include "vdnn/cpu_ops.h"
#include "vdnn/schedule.h"
#include "vdnn/zoo.h"

namespace vdnn {
namespace {

constexpr std::array kPolicies{Policy::kBaseline, Policy::kOffloadNone, Policy::kOffloadAll,
                               Policy::kOffloadConv};
constexpr std::array kPreferences{AlgorithmPreference::kMemory, AlgorithmPreference::kPerformance};

void expect_right_schedules(const Network& network, const OpCatalog& catalog) {
  const auto tape = lower_to_tape(network, catalog, {.optimizer = SgdSpec{.momentum = 0.9F}});
  std::uint64_t offloaded = 0;
  for (const Policy policy : kPolicies) {
    for (const AlgorithmPreference preference : kPreferences) {
      const Plan plan = make_plan(*tape, {.policy = policy, .preference = preference});
      const Schedule schedule = make_schedule(*tape, plan);
      const std::vector<std::string> findings = check_schedule(*tape, schedule);
      EXPECT_TRUE(findings.empty()) << to_string(policy) << ", " << to_string(preference) << ": "
                                    << findings.front();
      offloaded = std::max(offloaded, offload_bytes(*tape, schedule));
    }
  }
  EXPECT_GT(offloaded, 0u);
  EXPECT_LE(offloaded, tape->feature_map_bytes());
}

// Evaluation has the same parameters, lying the same way.
void expect_shared_parameters(const Network& network, const OpCatalog& catalog) {
  const auto training = lower_to_tape(network, catalog, {});
  const auto evaluation = lower_to_evaluation_tape(network, catalog);
  ASSERT_EQ(training->parameters().size(), evaluation->parameters().size());
  for (std::size_t i = 0; i < training->parameters().size(); ++i) {
    const ParameterRecipe& trained = training->parameters()[i].recipe;
    const ParameterRecipe& evaluated = evaluation->parameters()[i].recipe;
    EXPECT_EQ(trained.type, evaluated.type) << trained.name;
    EXPECT_EQ(trained.storage_bytes, evaluated.storage_bytes) << trained.name;
    EXPECT_EQ(trained.storage_layout, evaluated.storage_layout) << trained.name;
  }
}

class ZooPlan : public ::testing::TestWithParam<std::string> {
 protected:
  Network network() const { return make_model({.model = GetParam(), .batch = 2}); }
};

TEST_P(ZooPlan, ClassicCatalog) {
  expect_right_schedules(network(), *make_classic_catalog());
  expect_shared_parameters(network(), *make_classic_catalog());
}

TEST_P(ZooPlan, CpuCatalog) {
  const auto library = make_cpu_ops({});
  expect_right_schedules(network(), library->catalog());
  expect_shared_parameters(network(), library->catalog());
}

INSTANTIATE_TEST_SUITE_P(Models, ZooPlan, ::testing::ValuesIn(model_names()), [](const auto& test) {
  std::string name = test.param;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

}  // namespace
}  // namespace vdnn
