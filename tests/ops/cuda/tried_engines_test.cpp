#include "src/ops/cuda/tried_engines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/ops/cuda/engine_algorithms.h"
#include "tests/ops/cuda/listed_engines.h"
#include "vdnn/error.h"

namespace vdnn::cuda::tried_engines_test {
namespace {

using enum NumericalNote;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::ThrowsMessage;
using ::testing::UnorderedElementsAreArray;

const EngineQuestion kQuestion = plane_question(1, DataType::kF32);
const EngineQuestion kAnother = plane_question(3, DataType::kF32);

// The engines in the library's order.
const std::vector<Engine> kEngines{{.name = "rounded", .workspace_bytes = 90, .notes = {kTensorCore}},
                                   {.name = "large", .workspace_bytes = 50},
                                   {.name = "as large", .workspace_bytes = 50},
                                   {.name = "middle", .workspace_bytes = 20},
                                   {.name = "small", .workspace_bytes = 0}};

EngineTrial right(double seconds) {
  return {.worst_error = 0, .tolerance = 1, .seconds = seconds};
}
const EngineTrial kWrong{.worst_error = 7.5, .tolerance = 0.25};

// Returns the scripted results. By default every engine is right and equally fast. Each trial lasts ten
// seconds.
struct Script final : EngineTrials {
  std::vector<EngineTrial> run(const EngineQuestion&, std::span<const Engine> engines, TrialKind kind,
                               const std::function<bool()>& go_on) override {
    if (no_memory) {
      throw OutOfMemory("operands", {.asked = 5, .budget = 4});
    }
    std::vector<EngineTrial> trials;
    for (const Engine& engine : engines) {
      if (!go_on()) {
        break;
      }
      seconds += 10;
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
  TriedEngines tried_engines(EngineTiming timing, double most_seconds = 1000, bool tf32 = false) {
    report_ = std::make_shared<EngineTrialReport>();
    return with_report(timing, most_seconds, tf32);
  }
  // Returns engines whose trials are added to the report of the previous engines.
  TriedEngines with_report(EngineTiming timing, double most_seconds, bool tf32 = false) {
    return TriedEngines({.source = std::make_shared<ListedEngines>("library 1.2", kEngines),
                         .trials = trials_,
                         .timings = timings_,
                         .warn = [this](const std::string& text) { warnings_.push_back(text); },
                         .report = report_,
                         .clock = [this] { return trials_->seconds; }},
                        {.limits = {.workspace_bytes = tf32 ? 100U : 80U,
                                    .deterministic = true,
                                    .rounded_inputs = false,
                                    .tf32 = tf32},
                         .timing = timing,
                         .most_seconds = most_seconds});
  }
  std::vector<std::string> list(EngineTiming timing) {
    const TriedEngines tried = tried_engines(timing);
    EXPECT_EQ(tried.name(), timing == EngineTiming::kAll ? "library 1.2, timed" : "library 1.2");
    return names_of(tried, kQuestion);
  }
  // The algorithms made from the tried engines, in order.
  static std::vector<std::string> algorithms(const TriedEngines& tried,
                                             const EngineQuestion& question = kQuestion,
                                             ProductPrecision precision = ProductPrecision::kFp32) {
    std::vector<std::string> names;
    for (const Algorithm& algorithm : engine_algorithms(std::make_shared<TriedEngines>(tried), precision)(
             question.convolution, question.direction, question.elements)) {
      names.push_back(algorithm.name);
    }
    return names;
  }
  std::vector<std::string> algorithms(EngineTiming timing) { return algorithms(tried_engines(timing)); }
  std::vector<std::string> list(bool all_timed) {
    return list(all_timed ? EngineTiming::kAll : EngineTiming::kOff);
  }

  const std::shared_ptr<Script> trials_ = std::make_shared<Script>();
  const std::shared_ptr<EngineTimingsFile> timings_ =
      std::make_shared<EngineTimingsFile>(std::nullopt, TrialPlace(), nullptr);
  std::shared_ptr<EngineTrialReport> report_;
  std::vector<std::string> warnings_;
};

TEST_F(TriedEnginesTest, MakeAlgorithmsInTheOrderOfTheirTimes) {
  trials_->answers = {{"large", right(3)}, {"as large", right(2)}, {"middle", right(4)}, {"small", right(1)}};
  EXPECT_THAT(algorithms(EngineTiming::kAll), ElementsAre("small", "large", "middle"));
  EXPECT_THAT(trials_->tried, ElementsAre("large", "as large", "middle", "small"));
  EXPECT_THAT(warnings_, IsEmpty());
}

// Regression: the set of algorithms depended on timings, so that a schedule or a checkpoint was refused if
// times were lost.
TEST_F(TriedEnginesTest, MakeTheSameAlgorithmsWhateverTheirTimes) {
  const std::vector<std::string> untimed = algorithms(EngineTiming::kOff);
  EXPECT_THAT(untimed, ElementsAre("large", "middle", "small"));
  trials_->answers = {{"large", right(3)}, {"as large", right(1)}, {"middle", right(2)}, {"small", right(1)}};
  EXPECT_THAT(algorithms(EngineTiming::kChoosable), UnorderedElementsAreArray(untimed));
  EXPECT_THAT(algorithms(EngineTiming::kAll), IsSupersetOf(untimed));
  EXPECT_THAT(algorithms(EngineTiming::kAll), ElementsAre("as large", "small", "middle", "large"));
  EXPECT_THAT(algorithms(EngineTiming::kChoosable), UnorderedElementsAreArray(untimed))
      << "other engines have times by now";
}

// Predictions use these times as the engines' costs.
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
  EXPECT_THAT(algorithms(EngineTiming::kAll), ElementsAre("large", "middle", "small"));
}

TEST_F(TriedEnginesTest, AreTriedOnceAPlace) {
  list(true);
  trials_->tried.clear();
  EXPECT_EQ(list(true).size(), kEngines.size());
  EXPECT_THAT(trials_->tried, IsEmpty());
}

// Without times the library's order applies. An engine that no limit selects is tried only if the previous
// engine is wrong.
TEST_F(TriedEnginesTest, WithoutTimesOnlyWhatMayBeChosenIsTried) {
  EXPECT_THAT(list(false), ElementsAre("large", "as large", "middle", "small", "rounded"));
  EXPECT_THAT(trials_->tried, ElementsAre("large", "middle", "small"));
}

TEST_F(TriedEnginesTest, TimesWhatMayBeChosenWhereThatIsEnough) {
  trials_->answers = {{"large", right(3)}, {"as large", right(1)}, {"middle", right(2)}, {"small", right(5)}};
  EXPECT_THAT(algorithms(EngineTiming::kChoosable), ElementsAre("middle", "large", "small"));
  EXPECT_THAT(trials_->tried, ElementsAre("large", "middle", "small"));
  EXPECT_EQ(report_->engines, 3U);
  EXPECT_EQ(report_->convolutions, 1U);
  EXPECT_EQ(report_->untimed, 0U);
  EXPECT_EQ(report_->seconds, 30);
}

// Trials of three engines last thirty seconds. The results of the second question's engines are checked
// nevertheless.
TEST_F(TriedEnginesTest, WhenTimeIsUpTheLibrarysOrderStands) {
  trials_->answers = {{"large", right(3)}, {"middle", kWrong}, {"small", right(1)}};
  const TriedEngines tried = tried_engines(EngineTiming::kChoosable, 30);
  EXPECT_THAT(algorithms(tried), ElementsAre("small", "large"));
  EXPECT_THAT(algorithms(tried, kAnother), ElementsAre("large", "small"));
  for (const Engine& engine : tried.list(kAnother)) {
    EXPECT_FALSE(engine.seconds) << engine.name;
  }
  EXPECT_EQ(report_->engines, 6U);
  EXPECT_EQ(report_->convolutions, 2U);
  EXPECT_GT(report_->untimed, 0U);
}

// Regression: an engine with a time was placed before engines without, against the library's order. Moreover,
// timing ended only between questions.
TEST_F(TriedEnginesTest, WhereTimeIsUpBetweenEnginesTheLibrarysOrderStands) {
  trials_->answers = {{"large", right(3)}, {"small", right(1)}};
  const TriedEngines tried = tried_engines(EngineTiming::kChoosable, 15);
  EXPECT_THAT(algorithms(tried), ElementsAre("large", "middle", "small"));
  EXPECT_THAT(trials_->tried, ElementsAre("large", "middle", "small"));
  for (const Engine& engine : tried.list(kQuestion)) {
    EXPECT_FALSE(engine.seconds) << engine.name;
  }
  EXPECT_TRUE(timings_->find(to_string(kQuestion), "large")->seconds) << "the measured time is kept";
  EXPECT_FALSE(timings_->find(to_string(kQuestion), "small")->seconds);
}

// Regression: a run with TF32 treated the times of an fp32 run as complete. Moreover, the time limit of one
// run also applied to the other.
TEST_F(TriedEnginesTest, RunsOfAnotherPrecisionCompareTheirOwnEngines) {
  trials_->answers = {{"rounded", right(1)}, {"large", right(3)}, {"middle", right(4)}, {"small", right(5)}};
  const auto in_tf32 = [&](double seconds) {
    return algorithms(tried_engines(EngineTiming::kChoosable, seconds, true), kQuestion,
                      ProductPrecision::kTf32);
  };
  EXPECT_THAT(algorithms(EngineTiming::kChoosable), ElementsAre("large", "middle", "small"));
  trials_->tried.clear();
  EXPECT_THAT(in_tf32(0.5), ElementsAre("rounded in tf32", "large", "middle", "small"));
  EXPECT_THAT(trials_->tried, ElementsAre("rounded"));
  EXPECT_EQ(report_->untimed, 0U) << "the only trial began in time";
  trials_->answers["rounded"] = right(9);
  EXPECT_THAT(in_tf32(0.5).front(), "rounded in tf32") << "its time is known";
}

TEST_F(TriedEnginesTest, WhatOnePrecisionLeftUntimedTheOtherDoesNot) {
  trials_->answers = {{"rounded", right(2)}, {"large", right(3)}, {"middle", right(4)}, {"small", right(1)}};
  const auto untimed_within = [&](double seconds, bool tf32) {
    names_of(tried_engines(EngineTiming::kChoosable, seconds, tf32), kQuestion);
    return report_->untimed;
  };
  EXPECT_EQ(untimed_within(5, true), 1U);
  EXPECT_EQ(untimed_within(5, false), 1U);
  EXPECT_EQ(untimed_within(1000, false), 0U);
  EXPECT_EQ(untimed_within(5, true), 1U) << "a repeated run has the same algorithms";
  EXPECT_EQ(untimed_within(5, false), 0U) << "all its engines have times";
}

// Otherwise a repeated run with the same time limit would time the engines that the first run left out, and
// choose other algorithms.
TEST_F(TriedEnginesTest, WhatHadNoTimeIsLeftUntimedByRunsThatHaveNoMore) {
  trials_->answers = {{"large", right(3)}, {"small", right(1)}};
  const auto answers_within = [&](double seconds) {
    const TriedEngines tried = tried_engines(EngineTiming::kChoosable, seconds);
    return std::pair(algorithms(tried, kQuestion), algorithms(tried, kAnother));
  };
  const auto first = answers_within(30);
  trials_->tried.clear();
  EXPECT_EQ(answers_within(30), first);
  EXPECT_EQ(report_->untimed, 1U);
  EXPECT_EQ(answers_within(5), first);
  EXPECT_THAT(trials_->tried, IsEmpty());
  EXPECT_NE(answers_within(50), first);
  EXPECT_THAT(trials_->tried, ElementsAre("large", "middle", "small"));
  EXPECT_EQ(report_->untimed, 0U);
  trials_->tried.clear();
  EXPECT_NE(answers_within(30), first) << "measured times are kept";
  EXPECT_THAT(trials_->tried, IsEmpty());
}

// Regression: a run that lowers its network twice had twice its time limit and reported only the second
// lowering.
TEST_F(TriedEnginesTest, OneLimitHoldsForAllThatAreCountedTogether) {
  const TriedEngines first = tried_engines(EngineTiming::kChoosable, 30);
  names_of(first, kQuestion);
  names_of(with_report(EngineTiming::kChoosable, 30), kAnother);
  EXPECT_EQ(report_->untimed, 1U);
  EXPECT_EQ(report_->engines, 6U);
  EXPECT_EQ(report_->seconds, 60);
}

TEST_F(TriedEnginesTest, WhatIsWrongIsRefusedAndTheNextIsTried) {
  trials_->answers = {{"large", kWrong}};
  EXPECT_THAT(list(false), ElementsAre("as large", "middle", "small", "rounded"));
  EXPECT_THAT(trials_->tried, ElementsAre("large", "middle", "small", "as large"));
  EXPECT_THAT(warnings_, ElementsAre(AllOf(HasSubstr("engine large is not used for fp32 convolution"),
                                           HasSubstr("off by 7.5"), HasSubstr("0.25"))));
}

// A wrong result also applies to later runs, and each of them warns.
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

// An engine that was only compared with the reference is timed when a run requests times.
TEST_F(TriedEnginesTest, WhatHasNoTimeYetIsTimed) {
  list(false);
  trials_->tried.clear();
  trials_->answers = {{"large", right(9)}};
  EXPECT_THAT(algorithms(EngineTiming::kAll), ElementsAre("as large", "middle", "small", "large"));
  EXPECT_THAT(trials_->tried, ElementsAre("large", "as large", "middle", "small"));
}

TEST_F(TriedEnginesTest, WhatHasNoRoomComesLastAndIsTriedAgain) {
  trials_->answers = {{"large", {.failure = "no room", .no_room = true}}};
  EXPECT_THAT(algorithms(EngineTiming::kAll), ElementsAre("as large", "middle", "small", "large"));
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
              ThrowsMessage<NoEngine>(AllOf(HasSubstr("no engine of library 1.2 passed its trial"),
                                            HasSubstr("small: its result is off by 7.5"))));
}

}  // namespace
}  // namespace vdnn::cuda::tried_engines_test
