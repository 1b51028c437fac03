#include "vdnn/chrome_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "vdnn/error.h"

namespace vdnn::chrome_trace_test {
namespace {

using Json = nlohmann::json;
using Kind = TraceEvent::Kind;

const std::vector<std::string> kStreams{"compute", "to \"host\"\n"};

Json trace_of(const std::vector<TraceEvent>& events, const std::string& process = "vdnn",
              std::string_view last_launch = {}) {
  std::ostringstream out;
  write_chrome_trace(out, process, kStreams, events, last_launch);
  return Json::parse(out.str()).at("traceEvents");
}

std::vector<Json> of_phase(const Json& trace, const std::string& phase) {
  std::vector<Json> found;
  for (const Json& event : trace) {
    if (event.at("ph") == phase) {
      found.push_back(event);
    }
  }
  return found;
}

TEST(ChromeTrace, NamesTheProcessAndATrackPerStream) {
  const auto metadata = of_phase(trace_of({}, "sim:\\titan-x"), "M");
  std::map<std::string, std::map<int, Json>> names;
  for (const Json& event : metadata) {
    names[event.at("name")][event.at("tid")] = event.at("args");
  }
  EXPECT_EQ(names["process_name"][0], (Json{{"name", "sim:\\titan-x"}}));
  EXPECT_EQ(names["thread_name"][0], (Json{{"name", kStreams[0]}}));
  EXPECT_EQ(names["thread_name"][1], (Json{{"name", kStreams[1]}}));
  EXPECT_EQ(names["thread_sort_index"][1], (Json{{"sort_index", 1}}));
}

TEST(ChromeTrace, ShowsWorkWaitsAndCounters) {
  const Json trace = trace_of({
      {.kind = Kind::kWork, .stream = 0, .name = "conv1 \"forward\"", .begin_seconds = 2, .end_seconds = 2.5},
      {.kind = Kind::kWait, .stream = 1, .name = "compute", .begin_seconds = 2, .end_seconds = 2.25},
      {.kind = Kind::kWait, .stream = 1, .name = "", .begin_seconds = 2.25, .end_seconds = 2.5},
      {.kind = Kind::kCounter,
       .stream = 0,
       .name = "in use",
       .begin_seconds = 2.5,
       .end_seconds = 2.5,
       .value = std::uint64_t{1} << 60},
  });
  const auto bars = of_phase(trace, "X");
  ASSERT_EQ(bars.size(), 3U);
  EXPECT_EQ(bars[0].at("name"), "conv1 \"forward\"");
  EXPECT_EQ(bars[0].at("tid"), 0);
  EXPECT_EQ(bars[0].at("ts"), 0);
  EXPECT_EQ(bars[0].at("dur"), 500'000);
  EXPECT_EQ(bars[1].at("name"), "wait");
  EXPECT_EQ(bars[1].at("tid"), 1);
  EXPECT_EQ(bars[1].at("args"), (Json{{"for", "compute"}}));
  EXPECT_EQ(bars[2].at("name"), "wait");
  EXPECT_FALSE(bars[2].contains("args"));

  const auto counters = of_phase(trace, "C");
  ASSERT_EQ(counters.size(), 1U);
  EXPECT_EQ(counters[0].at("name"), "in use");
  EXPECT_EQ(counters[0].at("ts"), 500'000);
  EXPECT_EQ(counters[0].at("args"), (Json{{"bytes", std::uint64_t{1} << 60}}));
}

TEST(ChromeTrace, CopiesHaveBytesAndTheirRate) {
  const auto bars = of_phase(
      trace_of(
          {{.stream = 1, .name = "offload", .begin_seconds = 1, .end_seconds = 1.5, .value = 3'000'000'000},
           {.stream = 1, .name = "at once", .begin_seconds = 2, .end_seconds = 2, .value = 8},
           {.name = "op", .begin_seconds = 1, .end_seconds = 2}}),
      "X");
  EXPECT_EQ(bars[0].at("args"), (Json{{"bytes", 3'000'000'000}, {"GB/s", 6.0}}));
  EXPECT_EQ(bars[1].at("args"), (Json{{"bytes", 8}}));
  EXPECT_FALSE(bars[2].contains("args"));
}

TEST(ChromeTrace, MarksStepsByTheirLastLaunch) {
  const std::vector<TraceEvent> events{{.name = "first", .begin_seconds = 1, .end_seconds = 2},
                                       {.name = "update", .begin_seconds = 2, .end_seconds = 3},
                                       {.name = "first", .begin_seconds = 3, .end_seconds = 5},
                                       {.name = "update", .begin_seconds = 5, .end_seconds = 6}};
  std::vector<std::pair<std::string, std::pair<double, double>>> steps;
  for (const Json& bar : of_phase(trace_of(events, "process", "update"), "X")) {
    if (bar.at("tid") == kStreams.size()) {
      steps.emplace_back(bar.at("name"), std::pair(bar.at("ts"), bar.at("dur")));
    }
  }
  EXPECT_THAT(steps, ::testing::ElementsAre(std::pair("step 1", std::pair(0.0, 2e6)),
                                            std::pair("step 2", std::pair(2e6, 3e6))));
}

TEST(ChromeTrace, StartsAtTheEarliestEventWhereverItStands) {
  const auto bars = of_phase(trace_of({{.name = "late", .begin_seconds = 1e6 + 1, .end_seconds = 1e6 + 2},
                                       {.name = "early", .begin_seconds = 1e6, .end_seconds = 1e6 + 1}}),
                             "X");
  EXPECT_EQ(bars[0].at("ts"), 1'000'000);
  EXPECT_EQ(bars[1].at("ts"), 0);
}

// Perfetto refuses bars of one track that overlap without nesting, even by a nanosecond.
TEST(ChromeTrace, BarsThatTouchDoNotOverlap) {
  std::mt19937_64 random(11);
  std::vector<TraceEvent> events;
  double now = 12345.678;
  for (int i = 0; i < 1000; ++i) {
    const double begin = now;
    now += static_cast<double>(random() % 1'000'000) * 1.37e-9;
    events.push_back({.name = "op", .begin_seconds = begin, .end_seconds = now});
  }
  const auto bars = of_phase(trace_of(events), "X");
  const auto nanoseconds = [](const Json& microseconds) {
    return std::llround(microseconds.get<double>() * 1000);
  };
  for (std::size_t i = 1; i < bars.size(); ++i) {
    EXPECT_EQ(nanoseconds(bars[i - 1].at("ts")) + nanoseconds(bars[i - 1].at("dur")),
              nanoseconds(bars[i].at("ts")))
        << i;
  }
}

TEST(ChromeTrace, ANameThatIsNotUtf8DoesNotLoseTheTrace) {
  EXPECT_EQ(of_phase(trace_of({{.name = "conv\xff"}}), "X").size(), 1U);
}

TEST(ChromeTrace, RefusesAStreamWithoutANameBeforeWriting) {
  std::ostringstream out;
  const std::vector<TraceEvent> events{{.stream = 2, .name = "lost"}};
  EXPECT_THROW(write_chrome_trace(out, "vdnn", kStreams, events), InvalidArgument);
  EXPECT_TRUE(out.str().empty());
}

TEST(ChromeTrace, ReportsAStreamThatFails) {
  std::ostringstream out;
  out.setstate(std::ios::badbit);
  EXPECT_THROW(write_chrome_trace(out, "vdnn", kStreams, {}), DataError);
}

}  // namespace
}  // namespace vdnn::chrome_trace_test
