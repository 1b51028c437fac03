// Every network of the zoo, at the size of its publication, lowers on every catalog. Every policy plans it,
// and the checker finds no error in the schedule.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

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

void expect_right_schedules(const Network& network, const OpCatalog& catalog,
                            const PrecisionOptions& precision = {}) {
  const auto tape =
      lower_to_tape(network, catalog, {.optimizer = SgdSpec{.momentum = 0.9F}, .precision = precision});
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

// Evaluation has the same parameters in the same storage layout.
void expect_shared_parameters(const Network& network, const OpCatalog& catalog,
                              const PrecisionOptions& precision = {}) {
  const auto training = lower_to_tape(network, catalog, {.precision = precision});
  const auto evaluation = lower_to_evaluation_tape(network, catalog, precision);
  ASSERT_EQ(training->parameters().size(), evaluation->parameters().size());
  for (std::size_t i = 0; i < training->parameters().size(); ++i) {
    const ParameterRecipe& trained = training->parameters()[i].recipe;
    const ParameterRecipe& evaluated = evaluation->parameters()[i].recipe;
    EXPECT_EQ(trained.type, evaluated.type) << trained.name;
    EXPECT_EQ(trained.storage_bytes, evaluated.storage_bytes) << trained.name;
    EXPECT_EQ(trained.storage_layout, evaluated.storage_layout) << trained.name;
    EXPECT_EQ(trained.copy, evaluated.copy) << trained.name;
  }
}

// The rule of vDNN's prefetch window, stated for values instead of layers. A value is fetched beside the
// backward op of a layer L. L is the layer of the value's first backward reader, or a later layer of the
// network, if no convolution lies between the two. Beside one op, values are fetched for at most one layer
// other than its own.
void expect_in_its_window(const Tape& tape, const Plan& plan) {
  std::map<OpId, std::set<std::uint32_t>> ahead;  // for each op, the other layers for which it fetches
  for (const Transfer& transfer : plan.transfers) {
    const std::string& name = tape.value(transfer.value).name;
    const auto reader = std::ranges::find_if(tape.readers(transfer.value),
                                             [&](OpId id) { return tape.op(id).phase == Phase::kBackward; });
    ASSERT_NE(reader, tape.readers(transfer.value).end()) << name;
    const Op& fetcher = tape.op(transfer.prefetch_with);
    const std::optional<std::uint32_t> wanted_by = tape.op(*reader).layer;
    ASSERT_TRUE(fetcher.layer && wanted_by) << name << " comes back with " << fetcher.name;
    EXPECT_EQ(fetcher.phase, Phase::kBackward) << name << " comes back with " << fetcher.name;
    EXPECT_LE(transfer.prefetch_with, *reader) << name << " comes back with " << fetcher.name;
    ASSERT_LE(*wanted_by, *fetcher.layer) << name << " comes back with " << fetcher.name;
    for (std::uint32_t between = *wanted_by + 1; between < *fetcher.layer; ++between) {
      EXPECT_FALSE(tape.layers()[between].convolution)
          << name << " comes back with " << fetcher.name << ", before " << tape.layers()[between].name;
    }
    if (*wanted_by != *fetcher.layer) {
      ahead[transfer.prefetch_with].insert(*wanted_by);
    }
  }
  for (const auto& [op, layers] : ahead) {
    EXPECT_EQ(layers.size(), 1U) << tape.op(op).name << " fetches for several layers";
  }
}

// Each offloaded value, with the ops beside which it leaves and comes back.
std::vector<std::string> transfers(const Tape& tape, const Plan& plan) {
  std::vector<std::string> lines;
  for (const Transfer& transfer : plan.transfers) {
    lines.push_back(tape.value(transfer.value).name + " | " + tape.op(transfer.offload_with).name + " | " +
                    tape.op(transfer.prefetch_with).name);
  }
  return lines;
}

// Collectives, and ops that read all gradients, do not shift any transfer.
void expect_the_same_windows_for_ranks(const Network& network, const OpCatalog& catalog) {
  const std::array<TrainingOptions, 4> trainings{
      TrainingOptions{}, TrainingOptions{.clip_norm = 1.0F}, TrainingOptions{.ranks = 4},
      TrainingOptions{.clip_norm = 1.0F, .ranks = 4, .micro_steps = 2}};
  for (const Policy policy : kPolicies) {
    std::vector<std::string> alone;
    for (const TrainingOptions& training : trainings) {
      SCOPED_TRACE(to_string(policy) + ", " + std::to_string(training.ranks) + " ranks" +
                   (training.clip_norm ? ", clipped" : ""));
      const auto tape = lower_to_tape(network, catalog, training);
      const Plan plan = make_plan(*tape, {.policy = policy});
      expect_in_its_window(*tape, plan);
      const std::vector<std::string> planned = transfers(*tape, plan);
      if (&training == &trainings.front()) {
        alone = planned;
        EXPECT_EQ(planned.empty(), policy == Policy::kBaseline || policy == Policy::kOffloadNone);
      }
      EXPECT_EQ(planned, alone);
    }
  }
  // Statistics over all ranks need ops of their own, which belong to the layer.
  const auto synchronized = lower_to_tape(network, catalog, {.ranks = 4, .sync_batch_normalization = true});
  for (const Policy policy : kPolicies) {
    expect_in_its_window(*synchronized, make_plan(*synchronized, {.policy = policy}));
  }
}

class ZooPlan : public ::testing::TestWithParam<std::string> {
 protected:
  Network network() const { return make_model({.model = GetParam(), .batch = 2}); }
};

TEST_P(ZooPlan, NarrowTypes) {
  for (const DataType type : {DataType::kBf16, DataType::kF16}) {
    SCOPED_TRACE(to_string(type));
    expect_right_schedules(network(), *make_classic_catalog(), {.storage = type, .fp32_layers = {}});
    const auto cpu = make_cpu_ops({});
    expect_right_schedules(network(), cpu->catalog(), {.storage = type, .fp32_layers = {}});
    expect_shared_parameters(network(), cpu->catalog(), {.storage = type, .fp32_layers = {}});
  }
}

TEST_P(ZooPlan, ClassicCatalog) {
  expect_right_schedules(network(), *make_classic_catalog());
  expect_shared_parameters(network(), *make_classic_catalog());
}

TEST_P(ZooPlan, CpuCatalog) {
  const auto library = make_cpu_ops({});
  expect_right_schedules(network(), library->catalog());
  expect_shared_parameters(network(), library->catalog());
}

TEST_P(ZooPlan, NothingComesBackBeforeItsWindow) {
  expect_the_same_windows_for_ranks(network(), *make_classic_catalog());
}

INSTANTIATE_TEST_SUITE_P(Models, ZooPlan, ::testing::ValuesIn(model_names()), [](const auto& test) {
  std::string name = test.param;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

}  // namespace
}  // namespace vdnn
