#include "src/ops/cuda/engine_timings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/report/json_schema.h"
#include "tests/temporary_directory.h"
#include "vdnn/error.h"

namespace vdnn::cuda::engine_timings_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

const TrialPlace kHere{.gpu = "GPU \"one\"", .driver = "13.0", .cudnn = "9.19.0", .cudnn_frontend = "1.23.0"};

const EngineTrial kRight{.worst_error = 1e-6, .tolerance = 1e-4, .seconds = 1.0 / 3};
const EngineTrial kUntimed{.worst_error = 0, .tolerance = 1e-4};
const EngineTrial kOutOfTime{
    .worst_error = 0, .tolerance = 1e-4, .untimed_within_seconds = 60, .untimed_within_seconds_tf32 = 5};
const EngineTrial kWrong{.worst_error = kInfinity, .tolerance = 1e-4};

void expect_same(const EngineTrial* found, const EngineTrial& expected) {
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(*found, expected);
}

TrialPlace elsewhere(std::string TrialPlace::*part) {
  TrialPlace place = kHere;
  place.*part = "other";
  return place;
}

EngineTimings some() {
  EngineTimings timings;
  timings.record(kHere, "question", "right", kRight);
  timings.record(kHere, "question", "wrong", kWrong);
  timings.record(kHere, "another question", "right", kUntimed);
  timings.record(kHere, "another question", "late", kOutOfTime);
  timings.record(elsewhere(&TrialPlace::gpu), "question", "right", kUntimed);
  return timings;
}

TEST(EngineTimings, ComeBackFromTheirText) {
  const std::string text = some().text();
  const EngineTimings read(text);
  EXPECT_EQ(read.text(), text);
  expect_same(read.find(kHere, "question", "right"), kRight);
  expect_same(read.find(kHere, "question", "wrong"), kWrong);
  expect_same(read.find(kHere, "another question", "right"), kUntimed);
  expect_same(read.find(kHere, "another question", "late"), kOutOfTime);
  EXPECT_FALSE(read.find(kHere, "question", "wrong")->right());
  EXPECT_EQ(EngineTimings(EngineTimings().text()).text(), EngineTimings().text());
}

TEST(EngineTimings, HoldForTheirPlaceQuestionAndEngineAlone) {
  const EngineTimings timings = some();
  for (std::string TrialPlace::*part :
       {&TrialPlace::driver, &TrialPlace::cudnn, &TrialPlace::cudnn_frontend}) {
    EXPECT_EQ(timings.find(elsewhere(part), "question", "right"), nullptr);
  }
  expect_same(timings.find(elsewhere(&TrialPlace::gpu), "question", "right"), kUntimed);
  EXPECT_EQ(timings.find(elsewhere(&TrialPlace::gpu), "question", "wrong"), nullptr);
  EXPECT_EQ(timings.find(kHere, "no question", "right"), nullptr);
  EXPECT_EQ(timings.find(kHere, "question", "another"), nullptr);
}

TEST(EngineTimings, ObeyTheirSchema) {
  const auto schema = testing::read_json(std::string(VDNN_DOCS_DIRECTORY) + "/engine_timings.schema.json");
  for (const EngineTimings& timings : {some(), EngineTimings()}) {
    EXPECT_THAT(testing::SchemaCheck::errors(schema, testing::Json::parse(timings.text())), IsEmpty());
  }
}

TEST(EngineTimings, WhatIsNoneIsRefused) {
  const std::string text = some().text();
  const auto with = [&](const std::string& old, const std::string& now) {
    std::string changed = text;
    return changed.replace(changed.find(old), old.size(), now);
  };
  for (const std::string& damaged :
       {std::string(), std::string("[]"), text.substr(0, text.size() / 2), text + std::string(1, '\0'),
        with("\"schema\": 1", "\"schema\": 2"), with("engine timings", "engines"), with("devices", "places"),
        with("\"gpu\"", "\"cpu\""), with("\"13.0\"", "13"), with("questions", "answers"),
        with("\"name\"", "\"nam\""), with("null", "-1"), with("null", "\"1\""), with("null", "1e999"),
        with("\"tolerance\":", "\"tolerance\":-"), with("\"seconds\":", "\"seconds\":-"),
        with("[{\"name\"", "[[[{\"name\""), with("[\n", "{\n")}) {
    EXPECT_THROW(EngineTimings{damaged}, DataError) << damaged.substr(0, 80);
  }
}

constexpr const char* kName = "timings.json";

class EngineTimingsFileTest : public vdnn::testing::TemporaryDirectory {
 protected:
  std::filesystem::path path() const { return directory_ / kName; }
  EngineTimingsFile open(const TrialPlace& place = kHere) {
    return {path(), place, [this](const std::string& text) { warnings_.push_back(text); }};
  }

  std::vector<std::string> warnings_;
};

TEST_F(EngineTimingsFileTest, KeepsWhatWasRecordedForTheNextRun) {
  {
    EngineTimingsFile first = open();
    EXPECT_EQ(first.find("question", "right"), nullptr);
    first.save();
    EXPECT_FALSE(std::filesystem::exists(path()));  // nothing to keep
    first.record("question", "right", kRight);
    first.save();
  }
  EngineTimingsFile second = open();
  expect_same(second.find("question", "right"), kRight);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(EngineTimingsFileTest, KeepsWhatItHasOfOtherPlaces) {
  write(kName, some().text());
  EngineTimingsFile file = open(elsewhere(&TrialPlace::cudnn));
  EXPECT_EQ(file.find("question", "right"), nullptr);
  file.record("question", "right", kUntimed);
  file.save();
  const EngineTimings all(read(kName));
  expect_same(all.find(kHere, "question", "right"), kRight);
  expect_same(all.find(elsewhere(&TrialPlace::cudnn), "question", "right"), kUntimed);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(EngineTimingsFileTest, SaysWhyItPassesOverAFileAndRebuildsIt) {
  std::string older = some().text();
  older.replace(older.find("\"schema\": 1"), 11, "\"schema\": 0");
  const std::vector<std::pair<std::string, std::string>> files{
      {some().text().substr(0, 100), "no JSON"},
      {older, "version 0, not 1"},
      {R"({"schema": 1, "type": "engines"})", "of type \"engines\""}};
  for (const auto& [text, why] : files) {
    write(kName, text);
    warnings_.clear();
    EngineTimingsFile file = open();
    EXPECT_THAT(warnings_, ElementsAre(AllOf(HasSubstr("timings.json' is ignored"), HasSubstr(why))));
    EXPECT_EQ(file.find("question", "right"), nullptr);
    file.record("question", "right", kRight);
    file.save();
    expect_same(EngineTimings(read(kName)).find(kHere, "question", "right"), kRight);
  }
}

TEST_F(EngineTimingsFileTest, WhatCannotBeReadOrKeptIsAWarningAlone) {
  std::filesystem::create_directory(path());
  EngineTimingsFile file = open();
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("not a regular file")));
  file.record("question", "right", kRight);
  file.save();
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("is ignored"), HasSubstr("engine timings are not saved")));
  expect_same(file.find("question", "right"), kRight);
}

// Regression: the warning was printed once per convolution.
TEST_F(EngineTimingsFileTest, WhatCannotBeKeptIsToldOnce) {
  EngineTimingsFile file(directory_ / "no" / kName, kHere,
                         [this](const std::string& text) { warnings_.push_back(text); });
  for (const std::string question : {"question", "another question", "a third"}) {
    file.record(question, "right", kRight);
    file.save();
  }
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("engine timings are not saved")));
  expect_same(file.find("question", "right"), kRight);
}

// Regression: the last run to save replaced the file, and the times of the other runs were lost.
TEST_F(EngineTimingsFileTest, RunsAtTheSameTimeKeepEachOthersTimesAndTheFirstOfTheSame) {
  EngineTimingsFile first = open();
  EngineTimingsFile second = open();
  first.record("question", "right", kRight);
  first.save();
  second.record("question", "right", kUntimed);
  second.record("another question", "right", kRight);
  second.save();
  expect_same(second.find("question", "right"), kRight);  // and the second run uses it
  first.record("a third", "right", kRight);
  first.save();
  expect_same(first.find("another question", "right"), kRight);
  const EngineTimings all(read(kName));
  for (const std::string question : {"question", "another question", "a third"}) {
    expect_same(all.find(kHere, question, "right"), kRight);
  }
  EXPECT_THAT(warnings_, IsEmpty());
}

// A later result replaces an entry of the file, unless another run has changed the entry meanwhile.
TEST_F(EngineTimingsFileTest, WhatWasReadMayBeReplaced) {
  write(kName, some().text());
  EngineTimingsFile first = open();
  EngineTimingsFile second = open();
  first.record("another question", "right", kRight);
  first.save();
  second.record("another question", "right", kOutOfTime);
  second.save();
  expect_same(EngineTimings(read(kName)).find(kHere, "another question", "right"), kRight);
  second.record("another question", "right", kOutOfTime);
  second.save();
  expect_same(EngineTimings(read(kName)).find(kHere, "another question", "right"), kOutOfTime);
}

// The writers are processes, since threads of one process would not show whether the file is locked. Each
// adds its own entries.
TEST_F(EngineTimingsFileTest, WritersWaitForEachOther) {
  constexpr int kWriters = 4;
  constexpr int kQuestions = 20;
  const auto name = [](int writer, int question) {
    return std::to_string(writer) + "." + std::to_string(question);
  };
  std::vector<pid_t> writers;
  for (int writer = 0; writer < kWriters; ++writer) {
    const pid_t child = ::fork();
    if (child == 0) {
      EngineTimingsFile file(path(), kHere, [](const std::string&) { ::_exit(1); });
      for (int question = 0; question < kQuestions; ++question) {
        file.record(name(writer, question), "right", kRight);
        file.save();
      }
      ::_exit(0);
    }
    ASSERT_GT(child, 0);
    writers.push_back(child);
  }
  for (const pid_t writer : writers) {
    int status = 1;
    EXPECT_EQ(::waitpid(writer, &status, 0), writer);
    EXPECT_EQ(status, 0);
  }
  const EngineTimings all(read(kName));
  for (int writer = 0; writer < kWriters; ++writer) {
    for (int question = 0; question < kQuestions; ++question) {
      expect_same(all.find(kHere, name(writer, question), "right"), kRight);
    }
  }
}

TEST_F(EngineTimingsFileTest, WithoutAFileTimingsLiveAsLongAsTheObject) {
  EngineTimingsFile file({}, kHere, [](const std::string&) { FAIL(); });
  file.record("question", "right", kRight);
  file.save();
  expect_same(file.find("question", "right"), kRight);
}

}  // namespace
}  // namespace vdnn::cuda::engine_timings_test
