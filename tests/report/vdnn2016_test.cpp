// The vDNN paper's tables as we compute them (docs/planner.md).

#include "src/report/vdnn2016.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/plan/tapes.h"
#include "tests/report/json_schema.h"

namespace vdnn {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kMiB = 1 << 20;

const Vdnn2016& reproduction() {
  static const Vdnn2016 computed = reproduce_vdnn2016();
  return computed;
}

const ReproducedPolicy& policy_of(const ReproducedNetwork& network, const std::string& name) {
  return *std::ranges::find(network.policies, name, &ReproducedPolicy::name);
}

void expect_within_percent(double bytes, double mib, double percent, const std::string& what) {
  EXPECT_NEAR(bytes / kMiB, mib, mib * percent / 100) << what;
}
void expect_within_percent(std::uint64_t bytes, double mib, double percent, const std::string& what) {
  expect_within_percent(static_cast<double>(bytes), mib, percent, what);
}

// AlexNet's expected traffic is computed from its shapes, since the small bar in the paper's figure is 10 MiB
// off.
TEST(Vdnn2016, TrafficIsThePapers) {
  ASSERT_EQ(reproduction().networks.size(), 2U);
  const ReproducedNetwork& alexnet = reproduction().networks[0];
  expect_within_percent(alexnet.traffic[0].bytes, 348.9, 1, "alexnet, all");
  expect_within_percent(alexnet.traffic[1].bytes, 164.9, 1, "alexnet, conv");
  for (const ReproducedTraffic& traffic : reproduction().networks[1].traffic) {
    expect_within_percent(traffic.bytes, traffic.paper_mib.value(), 1, "vgg19, " + traffic.policy);
  }
}

// The formulas for workspace are ours. Without workspace, the paper's accounting yields the paper's figures.
TEST(Vdnn2016, BaselinesAreThePapersButForWorkspace) {
  for (const ReproducedNetwork& network : reproduction().networks) {
    const ReproducedPolicy& memory = policy_of(network, "baseline(m)");
    const ReproducedPolicy& performance = policy_of(network, "baseline(p)");
    expect_within_percent(memory.with_classifier.peak_bytes, memory.paper.peak_mib.value(), 1, network.model);
    EXPECT_GT(performance.with_classifier.peak_bytes, memory.with_classifier.peak_bytes);
    EXPECT_LT(performance.with_classifier.peak_bytes / kMiB, performance.paper.peak_mib.value());
  }
  // Within the distance that docs/planner.md states.
  expect_within_percent(policy_of(reproduction().networks[0], "baseline(p)").with_classifier.peak_bytes, 1131,
                        14, "alexnet");
  expect_within_percent(policy_of(reproduction().networks[1], "baseline(p)").with_classifier.peak_bytes, 8601,
                        3, "vgg19");
}

TEST(Vdnn2016, PoliciesAreAsFastOneAfterTheOtherAsInThePaper) {
  for (const ReproducedNetwork& network : reproduction().networks) {
    SCOPED_TRACE(network.model);
    const auto speed = [&](const std::string& name) { return policy_of(network, name).relative_speed; };
    EXPECT_LT(speed("all(m)"), speed("all(p)"));
    EXPECT_LT(speed("all(p)"), speed("conv(p)"));
    EXPECT_LE(speed("conv(p)"), speed("dyn"));
    EXPECT_NEAR(speed("dyn"), 1, 1e-3);
    for (const ReproducedPolicy& policy : network.policies) {
      if (policy.paper.relative_speed) {
        EXPECT_NEAR(policy.relative_speed, *policy.paper.relative_speed, 0.10) << policy.name;
      }
    }
  }
}

// As docs/planner.md states for all(m), the paper's peak equals our peak minus Y and dY of the first pooling.
TEST(Vdnn2016, ThePeakOfAllWithoutWorkspaceIsThePapersAndOnePoolingsOutput) {
  constexpr double kAlexnetPool1 = 4.0 * 128 * 64 * 27 * 27;
  constexpr double kVggPool1 = 4.0 * 64 * 64 * 112 * 112;
  const auto less = [](const ReproducedNetwork& network, double pooled_bytes) {
    return static_cast<double>(policy_of(network, "all(m)").without_classifier.peak_bytes) - 2 * pooled_bytes;
  };
  expect_within_percent(less(reproduction().networks[0], kAlexnetPool1), 275, 1.5, "alexnet");
  expect_within_percent(less(reproduction().networks[1], kVggPool1), 2454, 1.5, "vgg19");
}

// The worst case in the paper's text. In our accounting it needs more than 12 GiB, unlike in the paper's.
TEST(Vdnn2016, DynOfALargeVggLosesWhatThePaperLost) {
  const auto large = std::ranges::find_if(reproduction().limits, [](const ReproducedLimit& limit) {
    return limit.model == "vgg19" && limit.batch == 256;
  });
  ASSERT_NE(large, reproduction().limits.end());
  EXPECT_NEAR(large->relative_speed, large->paper_relative_speed.value(), 0.03);
  EXPECT_LE(large->peak_bytes, large->budget_bytes);
  EXPECT_LT(large->budget_bytes, std::uint64_t{14} << 30);
}

TEST(Vdnn2016, TheDeepNetworksFitIntoThePapersMachine) {
  std::size_t deep = 0;
  for (const ReproducedLimit& limit : reproduction().limits) {
    if (limit.batch == 32) {
      ++deep;
      EXPECT_TRUE(limit.fits) << limit.model;
      EXPECT_GT(limit.paper_baseline_bytes, std::uint64_t{12} << 30) << limit.model;
    }
  }
  EXPECT_EQ(deep, 4U);
}

// The two accountings differ exactly by the classifier's weights.
TEST(Vdnn2016, TheClassifiersWeightsAreThereAllTheTime) {
  const ReproducedNetwork& alexnet = reproduction().networks[0];
  constexpr std::uint64_t kWeights = 4ULL * (9216 * 4096 + 4096 + 4096 * 4096 + 4096 + 4096 * 1000 + 1000);
  for (const ReproducedPolicy& policy : alexnet.policies) {
    EXPECT_EQ(policy.with_classifier.peak_bytes - policy.without_classifier.peak_bytes, kWeights)
        << policy.name;
    EXPECT_NEAR(
        policy.with_classifier.average_over_time_bytes - policy.without_classifier.average_over_time_bytes,
        kWeights, 1)
        << policy.name;
  }
}

// In use are first x (8 bytes) and y (24 bytes) for one second, then y and metrics (80 bytes together) for
// three seconds. Afterwards y and dw use 100 bytes, which do not count.
TEST(Vdnn2016, ThePapersAccountingOfAScheduleByHand) {
  testing::TapeDraft draft;
  const ValueId x = draft.value("x", ValueKind::kInput, 8);
  const ValueId y = draft.value("y", ValueKind::kFeatureMap, 24);
  const ValueId metrics = draft.value("metrics", ValueKind::kMetrics, 80);
  const ValueId dw = draft.value("dw", ValueKind::kParameterGradient, 100);
  const std::uint32_t layer = draft.layer("layer");
  const auto taking = [](double seconds) {
    return std::vector<Algorithm>{{.name = "only", .cost = Cost{.seconds = seconds}}};
  };
  draft.op("first", layer, Phase::kForward, {x}, {y}, {}, taking(1));
  draft.op("second", layer, Phase::kForward, {y}, {metrics}, {}, taking(3));
  draft.op("third", layer, Phase::kBackward, {y}, {dw}, {}, taking(6));
  const testing::TapePtr tape = draft.finish();
  const PaperMemoryUse use = paper_memory(*tape, testing::schedule_of(*tape, Policy::kOffloadNone),
                                          sim_profile("titan-x"), ClassifierWeights::kCounted);
  EXPECT_EQ(use.peak_bytes, 24 + 80);
  EXPECT_DOUBLE_EQ(use.average_over_time_bytes, (1 * 32 + 3 * 104 + 6 * 24) / 10.0);
  EXPECT_DOUBLE_EQ(use.average_over_ops_bytes, (32 + 104 + 24) / 3.0);
}

TEST(Vdnn2016, JsonObeysItsSchema) {
  const auto schema = testing::read_json(VDNN_DOCS_DIRECTORY "/reproduction.schema.json");
  const auto lines = to_json(reproduction());
  EXPECT_EQ(lines.size(), reproduction().networks.size() + reproduction().limits.size());
  for (testing::Json line : lines) {
    line["schema"] = 1;
    EXPECT_THAT(testing::SchemaCheck::errors(schema, line), IsEmpty()) << line.dump(1);
    line["unknown"] = 1;
    EXPECT_FALSE(testing::SchemaCheck::errors(schema, line).empty());
  }
}

TEST(Vdnn2016, ThePageOfThePlannerShowsWhatComesOut) {
  std::ifstream file(VDNN_DOCS_DIRECTORY "/planner.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  std::ostringstream tables;
  print(tables, reproduction());
  EXPECT_THAT(page, HasSubstr("```\n" + tables.str() + "```\n"));
}

}  // namespace
}  // namespace vdnn
