#include "src/ops/cuda/tried_engines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/ops/cuda/listed_engines.h"
#include "vdnn/error.h"

namespace vdnn::cuda {
namespace {

using enum NumericalNote;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

const EngineQuestion kQuestion = plane_question(1, ElementType::kF32);
const EngineQuestion kAnother = plane_question(3, ElementType::kF32);

// In the library's order.
const std::vector<Engine> kEngines{{.name = "rounded", .workspace_bytes = 90, .notes = {kTensorCore}},
                                   {.name = "large", .workspace_bytes = 50},
                                   {.name = "as large", .workspace_bytes = 50},
                                   {.name = "middle", .workspace_bytes = 20},
                                   {.name = "small", .workspace_bytes = 0}};

EngineTrial right(double seconds) {
  return {.worst_error = 0, .tolerance = 1, .seconds = seconds};
}
const EngineTrial kWrong{.worst_error = 7.5, .tolerance = 0.25};

// Answers as it is told; by default engines are right and take as long as each other. Each question takes ten
// seconds.
struct Script final : EngineTrials {
  std::vector<EngineTrial> run(const EngineQuestion&, std::span<const Engine> engines,
                               TrialKind kind) override {
    if (no_memory) {
      throw OutOfMemory("operands", {.asked = 5, .budget = 4});
    }
    seconds += 10;
    std::vector<EngineTrial> trials;
    for (const Engine& engine : engines) {
      tried.push_back(engine.name);
      const auto told = answers.find(engine.name);
      trials.push_back(told == answers.end() ? right(1) : told->second);
      if (kind == TrialKind::kOfResults) {
        trials.back().seconds.reset();
      }
    }
    return trials;
  }

  double seconds = 0;
  std::map<std::string, EngineTrial> answers;
  std::vector<std::string> tried;
  bool no_memory = false;
};

class TriedEnginesTest : public ::testing::Test {
 protected:
  TriedEngines tried_engines(EngineTiming timing, double most_seconds = 1000) {
    report_ = std::make_shared<EngineTrialReport>();
    return TriedEngines({.source = std::make_shared<ListedEngines>("library 1.2", kEngines),
                         .trials = trials_,
                         .timings = timings_,
                         .warn = [this](const std::string& text) { warnings_.push_back(text); },
                         .report = report_,
                         .clock = [this] { return trials_->seconds; }},
                        {.limits = {.workspace_bytes = 80, .deterministic = true, .rounded_inputs = false},
                         .timing = timing,
                         .most_seconds = most_seconds});
  }
  std::vector<std::string> list(EngineTiming timing) {
    const TriedEngines tried = tried_engines(timing);
    EXPECT_EQ(tried.name(), timing == EngineTiming::kOff ? "library 1.2" : "library 1.2, timed");
    return names_of(tried, kQuestion);
  }
  std::vector<std::string> list(bool all_timed) {
    return list(all_timed ? EngineTiming::kAll : EngineTiming::kOff);
  }

  const std::shared_ptr<Script> trials_ = std::make_shared<Script>();
  const std::shared_ptr<EngineTimingsFile> timings_ =
      std::make_shared<EngineTimingsFile>(std::nullopt, TrialPlace(), nullptr);
  std::shared_ptr<EngineTrialReport> report_;
  std::vector<std::string> warnings_;
};

TEST_F(TriedEnginesTest, AreInTheOrderOfTheirTimes) {
  trials_->answers = {{"large", right(3)}, {"as large", right(2)}, {"middle", right(4)}, {"small", right(1)}};
  EXPECT_THAT(list(true), ElementsAre("small", "as large", "large", "middle", "rounded"));
  EXPECT_THAT(trials_->tried, ElementsAre("large", "as large", "middle", "small"));
  EXPECT_THAT(warnings_, IsEmpty());
}

// Predictions take them for what the engines cost.
TEST_F(TriedEnginesTest, BringTheirTimesAlong) {
  trials_->answers = {{"large", right(3)}, {"as large", {.failure = "no room", .no_room = true}}};
  std::map<std::string, std::optional<double>> seconds;
  for (const Engine& engine : tried_engines(EngineTiming::kAll).list(kQuestion)) {
    seconds[engine.name] = engine.seconds;
  }
  EXPECT_EQ(seconds.at("large"), 3);
  EXPECT_EQ(seconds.at("middle"), 1);
  EXPECT_EQ(seconds.at("as large"), std::nullopt);
  EXPECT_EQ(seconds.at("rounded"), std::nullopt);
}

TEST_F(TriedEnginesTest, OfEqualTimesTheLibrarysFirstIsFirst) {
  EXPECT_THAT(list(true), ElementsAre("large", "as large", "middle", "small", "rounded"));
}

TEST_F(TriedEnginesTest, AreTriedOnceAPlace) {
  list(true);
  trials_->tried.clear();
  EXPECT_EQ(list(true).size(), kEngines.size());
  EXPECT_THAT(trials_->tried, IsEmpty());
}

// Without times the library's order stands; what no limits choose is not tried until what hides it is wrong.
TEST_F(TriedEnginesTest, WithoutTimesOnlyWhatMayBeChosenIsTried) {
  EXPECT_THAT(list(false), ElementsAre("large", "as large", "middle", "small", "rounded"));
  EXPECT_THAT(trials_->tried, ElementsAre("large", "middle", "small"));
}

// Of those that could be chosen; what they hide stays behind them.
TEST_F(TriedEnginesTest, TimesWhatMayBeChosenWhereThatIsEnough) {
  trials_->answers = {{"large", right(3)}, {"as large", right(1)}, {"middle", right(2)}, {"small", right(5)}};
  EXPECT_THAT(list(EngineTiming::kChoosable), ElementsAre("middle", "large", "small", "as large", "rounded"));
  EXPECT_THAT(trials_->tried, ElementsAre("large", "middle", "small"));
  EXPECT_EQ(report_->engines, 3U);
  EXPECT_EQ(report_->convolutions, 1U);
  EXPECT_EQ(report_->untimed, 0U);
  EXPECT_EQ(report_->seconds, 10);
}

// The first question takes ten seconds. What the second one's engines compute is looked at all the same.
TEST_F(TriedEnginesTest, WhenTimeIsUpTheLibrarysOrderStands) {
  trials_->answers = {{"large", right(3)}, {"middle", kWrong}, {"small", right(1)}};
  const TriedEngines tried = tried_engines(EngineTiming::kChoosable, 10);
  EXPECT_THAT(names_of(tried, kQuestion), ElementsAre("small", "large", "as large", "rounded"));
  EXPECT_THAT(names_of(tried, kAnother), ElementsAre("large", "as large", "small", "rounded"));
  for (const Engine& engine : tried.list(kAnother)) {
    EXPECT_FALSE(engine.seconds) << engine.name;
  }
  EXPECT_EQ(report_->engines, 6U);
  EXPECT_EQ(report_->convolutions, 2U);
  EXPECT_GT(report_->untimed, 0U);
}

// Otherwise a repeated run, which has as much time once more, would go on with what the first one had to
// leave out, and have other algorithms.
TEST_F(TriedEnginesTest, WhatHadNoTimeIsLeftUntimedByRunsThatHaveNoMore) {
  trials_->answers = {{"large", right(3)}, {"small", right(1)}};
  const auto answers_within = [&](double seconds) {
    const TriedEngines tried = tried_engines(EngineTiming::kChoosable, seconds);
    return std::pair(names_of(tried, kQuestion), names_of(tried, kAnother));
  };
  const auto first = answers_within(10);
  trials_->tried.clear();
  EXPECT_EQ(answers_within(10), first);
  EXPECT_EQ(report_->untimed, 1U);
  EXPECT_EQ(answers_within(5), first);
  EXPECT_THAT(trials_->tried, IsEmpty());
  EXPECT_NE(answers_within(30), first);
  EXPECT_THAT(trials_->tried, ElementsAre("large", "middle", "small"));
  EXPECT_EQ(report_->untimed, 0U);
  trials_->tried.clear();
  EXPECT_NE(answers_within(10), first) << "what is timed stays so";
  EXPECT_THAT(trials_->tried, IsEmpty());
}

TEST_F(TriedEnginesTest, WhatIsWrongIsRefusedAndTheNextIsTried) {
  trials_->answers = {{"large", kWrong}};
  EXPECT_THAT(list(false), ElementsAre("as large", "middle", "small", "rounded"));
  EXPECT_THAT(trials_->tried, ElementsAre("large", "middle", "small", "as large"));
  EXPECT_THAT(warnings_, ElementsAre(AllOf(HasSubstr("engine large is not used for fp32 convolution"),
                                           HasSubstr("off by 7.5"), HasSubstr("0.25"))));
}

// What was found once holds for later runs, and they are told too.
TEST_F(TriedEnginesTest, WhatWasWrongOnceStaysRefused) {
  trials_->answers = {{"small", kWrong}};
  list(true);
  trials_->answers.clear();
  trials_->tried.clear();
  warnings_.clear();
  EXPECT_THAT(list(true), ElementsAre("large", "as large", "middle", "rounded"));
  EXPECT_THAT(trials_->tried, IsEmpty());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("engine small")));
}

// An engine that was held to the reference without being timed is timed when somebody wants times.
TEST_F(TriedEnginesTest, WhatHasNoTimeYetIsTimed) {
  list(false);
  trials_->tried.clear();
  trials_->answers = {{"large", right(9)}};
  EXPECT_THAT(list(true), ElementsAre("as large", "middle", "small", "large", "rounded"));
  EXPECT_THAT(trials_->tried, ElementsAre("large", "as large", "middle", "small"));
}

TEST_F(TriedEnginesTest, WhatHasNoRoomComesLastAndIsTriedAgain) {
  trials_->answers = {{"large", {.failure = "no room", .no_room = true}}};
  EXPECT_THAT(list(true), ElementsAre("as large", "middle", "small", "large", "rounded"));
  EXPECT_THAT(warnings_, IsEmpty());
  trials_->tried.clear();
  list(true);
  EXPECT_THAT(trials_->tried, ElementsAre("large"));
}

TEST_F(TriedEnginesTest, WhatCannotBeRunIsLeftOutAndTriedAgain) {
  trials_->answers = {{"middle", {.failure = "CUDNN_STATUS_EXECUTION_FAILED"}}};
  EXPECT_THAT(list(true), ElementsAre("large", "as large", "small", "rounded"));
  EXPECT_THAT(warnings_, ElementsAre(AllOf(HasSubstr("engine middle"), HasSubstr("EXECUTION_FAILED"))));
  trials_->answers.clear();
  EXPECT_EQ(list(true).size(), kEngines.size());
}

TEST_F(TriedEnginesTest, WhereOperandsHaveNoRoomTheLibrarysOrderStands) {
  trials_->no_memory = true;
  EXPECT_THAT(list(true), ElementsAre("large", "as large", "middle", "small", "rounded"));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("engines are not tried")));
}

TEST_F(TriedEnginesTest, WhereAllAreWrongTheReasonsAreSaid) {
  for (const Engine& engine : kEngines) {
    trials_->answers[engine.name] = kWrong;
  }
  EXPECT_THAT([&] { list(true); },
              ThrowsMessage<NoEngine>(AllOf(HasSubstr("no engine of library 1.2 stood its trial"),
                                            HasSubstr("small: its result is off by 7.5"))));
}

}  // namespace
}  // namespace vdnn::cuda
