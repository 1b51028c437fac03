// Costs learned from hand-made timelines, with exact figures.

#include "vdnn/learned_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "vdnn/error.h"

namespace vdnn::learned_costs_test {
namespace {

using ::testing::HasSubstr;
using Kind = TraceEvent::Kind;

constexpr StreamId kCompute = 0;
constexpr StreamId kOffload = 1;
constexpr StreamId kPrefetch = 2;
constexpr StreamId kLoad = 3;
constexpr double kMiB = 1 << 20;
constexpr double kCopySeconds = 0.5;  // latency, in addition to the bytes

Op make_op(const char* name, const std::vector<std::string>& algorithms, std::vector<ValueId> reads,
           std::vector<ValueId> writes) {
  Op op{.name = name, .reads = std::move(reads), .writes = std::move(writes)};
  for (const std::string& algorithm : algorithms) {
    op.algorithms.push_back({.name = algorithm});
  }
  return op;
}

// "first" makes x (16 MiB) from the input, "second" makes y (1 MiB) and z (1 KiB) from x.
Tape make_tape() {
  const auto value = [](const char* name, std::uint64_t kibibytes, ValueKind kind) {
    return Value{.name = name, .kind = kind, .bytes = kibibytes << 10};
  };
  return Tape(
      {.model = "made by hand",
       .values = {value("images", 8 << 10, ValueKind::kInput), value("x", 16 << 10, ValueKind::kFeatureMap),
                  value("y", 1 << 10, ValueKind::kFeatureMap), value("z", 1, ValueKind::kFeatureMap)},
       .ops = {make_op("first", {"fast", "slow", "too large"}, {0}, {1}),
               make_op("second", {"one", "other"}, {1}, {2, 3})},
       .layers = {{.name = "layer"}},
       .parameters = {},
       .inputs = {0},
       .results = {},
       .loss_weights = {}});
}

// Loads the inputs, launches both ops, moves x away and back, and launches "second" again.
Schedule make_schedule_of(std::vector<std::uint32_t> algorithms) {
  Schedule schedule{.algorithms = std::move(algorithms)};
  schedule.instructions = {{.kind = InstructionKind::kLoad, .stream = StreamRole::kLoad, .value = 0},
                           {.kind = InstructionKind::kLaunch, .op = 0},
                           {.kind = InstructionKind::kLaunch, .op = 1},
                           {.kind = InstructionKind::kOffload, .stream = StreamRole::kOffload, .value = 1},
                           {.kind = InstructionKind::kPrefetch, .stream = StreamRole::kPrefetch, .value = 1},
                           {.kind = InstructionKind::kPrefetch, .stream = StreamRole::kPrefetch, .value = 3},
                           {.kind = InstructionKind::kRecompute, .op = 1}};
  return schedule;
}

MeasuredTime expected(double seconds) {
  return {.seconds = seconds, .spread_seconds = 0.25, .launches = 7};
}

MeasuredCosts make_expected() {
  MeasuredCosts costs{
      .link_bytes_per_second = {.device_to_host = 10 * kMiB, .host_to_device = 20 * kMiB},
      .link_bytes_per_second_both_ways = {.device_to_host = 5 * kMiB, .host_to_device = 15 * kMiB},
      .launch_seconds = kCopySeconds};
  costs.ops["first"] = {{"fast", expected(1)}, {"slow", expected(3)}, {"too large", std::nullopt}};
  costs.ops["second"] = {{"one", expected(2)}, {"other", expected(4)}};
  return costs;
}

class LearnedCosts : public ::testing::Test {
 protected:
  void work(StreamId stream, const std::string& name, double begin, double end, Kind kind = Kind::kWork) {
    trace_.push_back({.kind = kind,
                      .stream = stream,
                      .name = name,
                      .begin_seconds = begin,
                      .end_seconds = end,
                      .value = 0});
  }
  void offload(double begin, double end) { work(kOffload, "offload x", begin, end); }
  void prefetch(double begin, double end) { work(kPrefetch, "prefetch x", begin, end); }
  void load(double begin, double end) { work(kLoad, "load images", begin, end); }
  // Adds launches, without which nothing can be learned.
  void launches() {
    work(kCompute, "first", 0, 1);
    work(kCompute, "second", 1, 3);
  }

  MeasuredCosts learned(std::vector<std::uint32_t> algorithms = {0, 0}) {
    seen_.add(tape_, make_schedule_of(std::move(algorithms)), kCompute, trace_);
    trace_.clear();
    return learned_costs(expected_, seen_);
  }

  Tape tape_ = make_tape();
  MeasuredCosts expected_ = make_expected();
  StepObservations seen_;
  std::vector<TraceEvent> trace_;
};

void expect_time(const std::optional<MeasuredTime>& time, double seconds, std::uint64_t launches) {
  ASSERT_TRUE(time);
  EXPECT_DOUBLE_EQ(time->seconds, seconds);
  EXPECT_EQ(time->launches, launches);
}

// --- ops ---------------------------------------------------------------------------------------------------

TEST_F(LearnedCosts, AnOpTakesTheMedianOfItsLaunchesTheGapInFrontIncludedAndRepeatsToo) {
  work(kCompute, "something else", 0, 1);
  for (const double step : {10.0, 20.0, 30.0}) {
    work(kCompute, "first", step, step + 2 + step / 10);  // 3, 4 and 5 s, with the idle time in front
    work(kCompute, "second", step + 5.5, step + 6);       // 3, 2 and 1 s since the end of "first"
    work(kCompute, "wait for prefetch", step + 6, step + 7, Kind::kWait);
    work(kCompute, "recompute second", step + 7.25, step + 8.5);  // 1.5 s since the end of the wait
    work(kCompute, "memory", step + 9, step + 9, Kind::kCounter);
  }
  const MeasuredCosts costs = learned();
  expect_time(costs.ops.at("first").at("fast"), 4, 3);
  expect_time(costs.ops.at("second").at("one"), 1.5, 6);
  EXPECT_DOUBLE_EQ(costs.ops.at("first").at("fast")->spread_seconds, 1);
}

TEST_F(LearnedCosts, AnAlgorithmThatDidNotRunKeepsItsRelationToTheOneThatDid) {
  work(kCompute, "something else", 0, 1);
  work(kCompute, "first", 1, 6);  // 5 s instead of 3 s
  work(kCompute, "second", 6, 7);
  const MeasuredCosts costs = learned({1, 0});
  expect_time(costs.ops.at("first").at("slow"), 5, 1);
  expect_time(costs.ops.at("first").at("fast"), 5.0 / 3, 0);
  EXPECT_FALSE(costs.ops.at("first").at("too large"));
  expect_time(costs.ops.at("second").at("other"), 2, 0);
}

TEST_F(LearnedCosts, AnAlgorithmThatRanEarlierKeepsWhatItTookThen) {
  work(kCompute, "something else", 0, 1);
  work(kCompute, "first", 1, 3);
  learned({0, 0});
  work(kCompute, "something else", 0, 1);
  work(kCompute, "first", 1, 16);
  const MeasuredCosts costs = learned({1, 0});
  expect_time(costs.ops.at("first").at("fast"), 2, 1);
  expect_time(costs.ops.at("first").at("slow"), 15, 1);
}

TEST_F(LearnedCosts, WhatWasNotSeenIsExpectedAsBefore) {
  work(kCompute, "something else", 0, 1);
  work(kCompute, "first", 1, 3);
  const MeasuredCosts costs = learned();
  EXPECT_EQ(costs.ops.at("second"), make_expected().ops.at("second"));
  EXPECT_EQ(costs.link_bytes_per_second.device_to_host, 10 * kMiB);
  EXPECT_EQ(costs.link_bytes_per_second_both_ways.host_to_device, 15 * kMiB);
  EXPECT_EQ(costs.launch_seconds, kCopySeconds);
}

TEST_F(LearnedCosts, ATraceOfSomethingElseIsRefused) {
  work(kCompute, "something else", 0, 1);
  work(kOffload, "first", 1, 2);  // on a stream that launches nothing
  try {
    learned();
    FAIL() << "learning from nothing should have thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("no launch of a step of 'made by hand'"));
  }
}

// --- the link ----------------------------------------------------------------------------------------------

TEST_F(LearnedCosts, TheLinkCarriesWhatItCarriedAlone) {
  launches();
  offload(10, 14.5);  // 16 MiB in 4 s and the latency of a copy
  prefetch(20, 28.5);
  const MeasuredCosts costs = learned();
  EXPECT_DOUBLE_EQ(costs.link_bytes_per_second.device_to_host, 4 * kMiB);
  EXPECT_DOUBLE_EQ(costs.link_bytes_per_second.host_to_device, 2 * kMiB);
  // No copies ran both ways at once, so the rates for both ways keep their ratios of 1/2 and 3/4 to the rates
  // for one way.
  EXPECT_DOUBLE_EQ(costs.link_bytes_per_second_both_ways.device_to_host, 2 * kMiB);
  EXPECT_DOUBLE_EQ(costs.link_bytes_per_second_both_ways.host_to_device, 1.5 * kMiB);
}

// The rate is the median over bytes: half of all bytes were copied at no more than this rate.
TEST_F(LearnedCosts, TheRateIsTheMedianOverBytes) {
  launches();
  load(0, 4.5);        // 8 MiB at 2 MiB/s
  prefetch(10, 12.5);  // 16 MiB at 8 MiB/s
  load(20, 28.5);      // 8 MiB at 1 MiB/s
  prefetch(30, 34.5);  // 16 MiB at 4 MiB/s
  EXPECT_DOUBLE_EQ(learned().link_bytes_per_second.host_to_device, 4 * kMiB);
}

TEST_F(LearnedCosts, TheLinkCarriesWhatItCarriedBothWaysAtOnce) {
  launches();
  offload(10, 14.5);       // alone: 4 MiB/s
  prefetch(20, 22.5);      // alone: 8 MiB/s
  offload(100, 107.5);     // after the latency 1 s alone: 4 MiB, then 6 s shared: 12 MiB
  prefetch(101.5, 107.5);  // always shared: 16 MiB in 6 s
  const MeasuredCosts costs = learned();
  EXPECT_DOUBLE_EQ(costs.link_bytes_per_second.device_to_host, 4 * kMiB);
  EXPECT_DOUBLE_EQ(costs.link_bytes_per_second.host_to_device, 8 * kMiB);
  EXPECT_DOUBLE_EQ(costs.link_bytes_per_second_both_ways.device_to_host, 2 * kMiB);
  EXPECT_DOUBLE_EQ(costs.link_bytes_per_second_both_ways.host_to_device, 16 * kMiB / 6);
}

TEST_F(LearnedCosts, ShortCopiesSayNothingOfRates) {
  launches();
  offload(10, 10.9);  // less than twice the latency of a copy
  work(kPrefetch, "prefetch z", 20, 30);
  const MeasuredCosts costs = learned();
  EXPECT_EQ(costs.link_bytes_per_second.device_to_host, 10 * kMiB);
  EXPECT_EQ(costs.link_bytes_per_second.host_to_device, 20 * kMiB) << "z is too small";
}

TEST_F(LearnedCosts, ASharedLinkIsNeverFasterThanAnUnsharedOne) {
  launches();
  offload(10, 18.5);    // alone: 2 MiB/s
  offload(100, 102.5);  // shared: 6.4 MiB/s
  prefetch(100, 102.5);
  const MeasuredCosts costs = learned();
  EXPECT_DOUBLE_EQ(costs.link_bytes_per_second.device_to_host, 2 * kMiB);
  EXPECT_DOUBLE_EQ(costs.link_bytes_per_second_both_ways.device_to_host, 2 * kMiB);
}

TEST_F(LearnedCosts, ALinkThatWasAlwaysSharedKeepsTheRatioOfItsRates) {
  launches();
  offload(100, 116);
  prefetch(100, 116);
  const MeasuredCosts costs = learned();
  EXPECT_DOUBLE_EQ(costs.link_bytes_per_second_both_ways.device_to_host, kMiB);
  EXPECT_DOUBLE_EQ(costs.link_bytes_per_second.device_to_host, 2 * kMiB);
}

// Varies two factors: the fraction of a copy's time in which it shares the link, and the ratio of the link's
// rate to the expected rate.
TEST_F(LearnedCosts, RatesAreLearnedAtAnyShareOfSharing) {
  expected_.launch_seconds = 0;
  for (const double times : {0.02, 1.0, 5.0}) {
    for (const double share : {0.0, 0.02, 0.1, 0.3, 0.6, 0.8, 1.0}) {
      SCOPED_TRACE(std::to_string(times) + " times as fast, shared for " + std::to_string(share));
      seen_ = {};
      launches();
      // 16 MiB at 10 MiB/s alone and at 5 MiB/s when shared, times the factor.
      const double seconds = 1.6 / times / (1 - share / 2);
      offload(10, 10 + seconds);
      prefetch(10, 10 + share * seconds);
      const MeasuredCosts costs = learned();
      // A copy that shares up to 5 % of its time counts as alone.
      const double error = share > 0 && share <= 0.05 ? 0.025 : 1e-9;
      EXPECT_NEAR(costs.link_bytes_per_second.device_to_host / (times * 10 * kMiB), 1, error);
      EXPECT_NEAR(costs.link_bytes_per_second_both_ways.device_to_host / (times * 5 * kMiB), 1, error);
    }
  }
}

// A copy that is submitted while another one of its direction occupies the engine is timed from the end of
// the other copy.
TEST_F(LearnedCosts, CopiesOfOneDirectionTakeTurns) {
  launches();
  prefetch(10, 14.5);
  load(10, 17);  // 8 MiB in 2.5 s, latency included
  EXPECT_DOUBLE_EQ(learned().link_bytes_per_second.host_to_device, 4 * kMiB);
}

}  // namespace
}  // namespace vdnn::learned_costs_test
