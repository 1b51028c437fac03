// `vdnn train --tensorboard`.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "src/base/environment.h"
#include "tests/process.h"
#include "tests/temporary_directory.h"

namespace vdnn::tensorboard_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TensorboardTest : public testing::TemporaryDirectory {
 protected:
  static std::string train_command(const std::string& more) {
    return std::string(VDNN_COMMAND) +
           " train --model lenet --data synthetic --device cpu --batch 4 --threads 1 " + more;
  }
  static testing::Outcome train(const std::string& more) { return testing::run_process(train_command(more)); }
  // Writes events to `runs` and JSON lines to the file `json`.
  void train_to(int steps, const std::string& more, const std::string& json) const {
    const testing::Outcome outcome =
        train("--steps " + std::to_string(steps) + " --tensorboard " + (directory_ / "runs").string() +
              " --json '" + (directory_ / json).string() + "' " + more);
    ASSERT_EQ(outcome.status, 0) << outcome.text;
  }
  // Reads the events in `runs`: pairs of step and value by tag.
  nlohmann::json scalars_in_tensorboard() const {
    write("read.py", R"(
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1])
events.Reload()
print("found:" + json.dumps({tag: [[s.step, s.value] for s in events.Scalars(tag)]
                             for tag in events.Tags()["scalars"]}))
)");
    const testing::Outcome reader =
        testing::run_process(std::string(VDNN_TENSORBOARD_PYTHON) + " " + (directory_ / "read.py").string() +
                             " " + (directory_ / "runs").string());
    EXPECT_EQ(reader.status, 0) << reader.text;
    const std::size_t begin = reader.text.find("found:");
    if (begin == std::string::npos) {
      ADD_FAILURE() << reader.text;
      return {};
    }
    return nlohmann::json::parse(reader.text.substr(begin + 6));
  }
};

// TensorBoard's own reader finds each step once. This also holds after a resumed run, even if an earlier run
// had gone on beyond the checkpoint.
TEST_F(TensorboardTest, ReadsTheFiguresOfTheJsonLines) {
  if (!std::filesystem::exists(VDNN_TENSORBOARD_PYTHON)) {
    constexpr const char* kNoTensorboard =
        "TensorBoard is not installed (scripts/setup --tensorboard does it)";
    ASSERT_NE(environment("VDNN_REQUIRE_TENSORBOARD"), "1") << kNoTensorboard;
    GTEST_SKIP() << kNoTensorboard;
  }
  const std::string saved = (directory_ / "saved").string();
  train_to(3, "--save " + saved, "1");
  train_to(5, "--resume " + saved, "cut off");
  train_to(6, "--resume " + saved, "2");
  const auto found = scalars_in_tensorboard();
  std::istringstream lines(read("1") + read("2"));
  std::size_t step = 0;
  for (std::string text; std::getline(lines, text);) {
    const auto line = nlohmann::json::parse(text);
    if (line["type"] == "step") {
      ASSERT_LT(step, found["loss"].size());
      EXPECT_EQ(found["loss"][step][0], line["step"]);
      EXPECT_EQ(found["loss"][step][1], static_cast<double>(line["loss"].get<float>()));
      ++step;
    }
  }
  EXPECT_EQ(step, 6U);
  EXPECT_EQ(found["loss"].size(), 6U);
  EXPECT_EQ(found["peak_bytes"].size(), 6U);
  EXPECT_EQ(found["memory_bytes"].size(), 6U);
  EXPECT_EQ(found["stall_seconds"].size(), 6U);
  EXPECT_EQ(found["images_per_second"].size(), 4U);  // the first step of each run has no rate
}

// A limit on the size of files imitates a full disk.
TEST_F(TensorboardTest, ATrainingGoesOnWhereEventsCannotBeWritten) {
  const std::string folder = (directory_ / "runs").string();
  const testing::Outcome outcome = testing::run_process(
      "(trap '' XFSZ; ulimit -f 1; " + train_command("--steps 50 --lr 0 --tensorboard " + folder) + ")");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  const std::string warning = "--tensorboard: writing to '" + folder;
  const std::size_t first = outcome.text.find(warning);
  ASSERT_NE(first, std::string::npos) << outcome.text;
  EXPECT_EQ(outcome.text.find(warning, first + 1), std::string::npos) << outcome.text;
}

TEST_F(TensorboardTest, AFolderThatCannotBeWrittenIsFoundBeforeTraining) {
  write("file", "in the way");
  for (const std::string& name : {std::string("file"), std::string(NAME_MAX + 1, 'x')}) {
    const std::string folder = (directory_ / name).string();
    const testing::Outcome outcome = train("--steps 4 --tensorboard " + folder);
    EXPECT_EQ(outcome.status, 2) << outcome.text;
    EXPECT_THAT(outcome.text, AllOf(HasSubstr("--tensorboard: "), HasSubstr(folder)));
    EXPECT_THAT(outcome.text, ::testing::Not(HasSubstr("trains for")));
  }
  EXPECT_EQ(read("file"), "in the way");
}

// Regression: TensorBoard's folder took the path of another output, so that the checkpoint could not be
// written at the end.
TEST_F(TensorboardTest, AFolderAtTheSamePathAsAnOutputIsRefusedBeforeTraining) {
  const std::string path = (directory_ / "runs").string();
  for (const std::string option : {"--save ", "--json ", "--trace ", "--learned "}) {
    for (const std::string& folder : {path, path + "/", path + "/first/again"}) {
      std::string arguments = "--steps 4 " + option;
      arguments.append(path).append(" --tensorboard ").append(folder);
      const testing::Outcome outcome = train(arguments);
      EXPECT_EQ(outcome.status, 2) << arguments << outcome.text;
      EXPECT_THAT(outcome.text,
                  AllOf(HasSubstr("--tensorboard " + folder + ": "), HasSubstr(path + " is an output file")));
      EXPECT_TRUE(empty()) << option;
    }
  }
}

}  // namespace
}  // namespace vdnn::tensorboard_test
