// `vdnn train` on a disk that is full, has no space for another file, becomes read-only or disappears. The
// command reports the failure and exits with the status of a failed output. The previous checkpoint stays
// unchanged.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/crash/command.h"
#include "tests/crash/small_disk.h"
#include "tests/temporary_directory.h"
#include "vdnn/checkpoint.h"

namespace vdnn::full_disk_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kExitOther = 1;
constexpr int kExitUsage = 2;

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> arguments(std::uint64_t steps, const std::vector<std::string>& others) {
  std::vector<std::string> result = {VDNN_COMMAND,       "train",     "--model=lenet",
                                     "--data=synthetic", "--batch=4", "--threads=1",
                                     "--memory=64MiB",   "--steps",   std::to_string(steps)};
  result.insert(result.end(), others.begin(), others.end());
  return result;
}

constexpr std::uint64_t kForEver = 1'000'000'000;

class FullDisk : public testing::TemporaryDirectory {
 protected:
  void SetUp() override {
    TemporaryDirectory::SetUp();
    if (const std::optional<std::string> reason = testing::no_small_disk()) {
      GTEST_SKIP() << *reason;
    }
  }

  // Returns the exit status; the output goes to the file `output`.
  int train(std::uint64_t steps, const std::vector<std::string>& others) const {
    return testing::Command(arguments(steps, others), directory_ / "output").wait();
  }
  std::string output() const { return read("output"); }

  std::string weights(const fs::path& json) const {
    const std::string text = contents(json);
    const std::size_t begin = text.rfind('\n', text.size() - 2) + 1;
    return nlohmann::json::parse(text.substr(begin))["weights_sha256"];
  }

  // Resumes from `checkpoint` after two steps, and expects the weights of four steps without an interruption.
  void expect_two_steps_are_gone_on_from(const fs::path& checkpoint) const {
    const fs::path whole = directory_ / "whole";
    const fs::path resumed = directory_ / "resumed";
    ASSERT_EQ(train(4, {"--json", whole}), 0) << output();
    ASSERT_EQ(train(4, {"--resume", checkpoint, "--json", resumed}), 0) << output();
    EXPECT_EQ(weights(resumed), weights(whole));
  }
};

TEST_F(FullDisk, ASaveThatHasNoSpaceLeavesThePreviousCheckpoint) {
  const testing::SmallDisk disk(directory_ / "disk", "size=5m");
  const fs::path checkpoint = disk / "checkpoint";
  ASSERT_EQ(train(2, {"--save", checkpoint}), 0) << output();
  const std::string before = contents(checkpoint);
  EXPECT_EQ(train(4, {"--resume", checkpoint, "--save", checkpoint}), kExitOther);
  struct statvfs left {};
  ASSERT_EQ(::statvfs(checkpoint.c_str(), &left), 0);
  EXPECT_THAT(output(), AllOf(HasSubstr("'" + checkpoint.string() + "'"),
                              HasSubstr(" of " + std::to_string(before.size()) + " bytes"),
                              HasSubstr("No space left on device"),
                              HasSubstr("has " + std::to_string(left.f_bavail * left.f_frsize) + " bytes")));
  EXPECT_TRUE(contents(checkpoint) == before);
  EXPECT_EQ(std::distance(fs::directory_iterator(checkpoint.parent_path()), {}), 1);
  expect_two_steps_are_gone_on_from(checkpoint);
}

// Regression: files of killed runs filled the disk.
TEST_F(FullDisk, ASaveFirstTakesBackWhatKilledRunsLeft) {
  const testing::SmallDisk disk(directory_ / "disk", "size=10m");
  const fs::path checkpoint = disk / "checkpoint";
  ASSERT_EQ(train(2, {"--save", checkpoint}), 0) << output();
  fs::copy_file(checkpoint, disk / "checkpoint.vdnn-tmp0");
  EXPECT_EQ(train(4, {"--resume", checkpoint, "--save", checkpoint}), 0) << output();
  EXPECT_FALSE(fs::exists(disk / "checkpoint.vdnn-tmp0"));
}

// The lines of some steps fit in one page, but not those of all steps.
TEST_F(FullDisk, JsonLinesThatFindNoSpaceEndTheTraining) {
  const testing::SmallDisk disk(directory_ / "disk", "size=4k");
  EXPECT_EQ(train(200, {"--json", disk / "json"}), kExitOther);
  EXPECT_THAT(output(), AllOf(HasSubstr("'" + (disk / "json").string() + "'"), HasSubstr("No space left")));
  EXPECT_THAT(contents(disk / "json"), HasSubstr("\"step\":1,"));
}

// Regression: the summary was lost with the trace, and the message gave no reason.
TEST_F(FullDisk, ATraceThatFindsNoSpaceIsReportedAndTakesNothingElseWithIt) {
  const testing::SmallDisk disk(directory_ / "disk", "size=4k");
  const fs::path checkpoint = directory_ / "checkpoint";
  EXPECT_EQ(train(2, {"--trace", disk / "trace", "--save", checkpoint, "--json", directory_ / "json"}),
            kExitOther);
  EXPECT_THAT(output(), AllOf(HasSubstr("'" + (disk / "trace").string() + "'"), HasSubstr("No space left")));
  EXPECT_EQ(weights(directory_ / "json").size(), 64U);
  expect_two_steps_are_gone_on_from(checkpoint);
}

TEST_F(FullDisk, ADiskWithoutRoomForAnotherFileIsSeenBeforeTraining) {
  const testing::SmallDisk disk(directory_ / "disk", "nr_inodes=2");
  const fs::path checkpoint = disk / "checkpoint";
  ASSERT_EQ(train(2, {"--save", checkpoint}), 0) << output();
  const std::string before = contents(checkpoint);
  EXPECT_EQ(train(4, {"--resume", checkpoint, "--save", checkpoint}), kExitUsage);
  EXPECT_THAT(output(), AllOf(HasSubstr("'" + checkpoint.string() + "'"),
                              HasSubstr("No space left on device"), HasSubstr("and 0 files left")));
  EXPECT_TRUE(contents(checkpoint) == before);
}

// The file of the JSON lines is the last one for which the disk has space.
TEST_F(FullDisk, ADiskThatRunsOutOfFilesLeavesThePreviousCheckpoint) {
  const testing::SmallDisk disk(directory_ / "disk", "nr_inodes=3");
  const fs::path checkpoint = disk / "checkpoint";
  ASSERT_EQ(train(2, {"--save", checkpoint}), 0) << output();
  const std::string before = contents(checkpoint);
  EXPECT_EQ(train(4, {"--resume", checkpoint, "--save", checkpoint, "--json", disk / "json"}), kExitOther);
  EXPECT_THAT(output(), AllOf(HasSubstr("'" + checkpoint.string() + "'"), HasSubstr("and 0 files left")));
  EXPECT_TRUE(contents(checkpoint) == before);
}

TEST_F(FullDisk, AReadOnlyDiskIsSeenBeforeTraining) {
  testing::SmallDisk disk(directory_ / "disk", "size=10m");
  const fs::path checkpoint = disk / "checkpoint";
  ASSERT_EQ(train(2, {"--save", checkpoint}), 0) << output();
  ASSERT_TRUE(disk.make_read_only());
  for (const char* const option : {"--save", "--json", "--trace"}) {
    const fs::path path = option == std::string("--save") ? checkpoint : disk / "other";
    EXPECT_EQ(train(4, {"--resume", checkpoint, option, path}), kExitUsage);
    EXPECT_THAT(output(), AllOf(HasSubstr("'" + path.string() + "'"), HasSubstr("Read-only file system")));
  }
  expect_two_steps_are_gone_on_from(checkpoint);
}

// Takes the disk away from a training run that saves after every step.
class DiskTakenAway : public FullDisk {
 protected:
  // Calls `take_away` until it returns true; the training must then end.
  template <class TakeAway>
  void train_until(const fs::path& checkpoint, const TakeAway& take_away) {
    testing::Command command(arguments(kForEver, {"--save", checkpoint, "--save-every", "1"}),
                             directory_ / "output");
    while (command.running() && !(fs::exists(checkpoint) && take_away())) {
      ::usleep(100);
    }
    EXPECT_EQ(command.wait(), kExitOther);
    EXPECT_THAT(output(), HasSubstr("'" + checkpoint.string() + "'"));
  }
  void expect_it_is_gone_on_from(const fs::path& checkpoint) const {
    const std::uint64_t saved = Checkpoint(checkpoint).info().step;
    EXPECT_EQ(train(saved + 1, {"--resume", checkpoint}), 0) << output();
  }
};

TEST_F(DiskTakenAway, ADiskThatBecomesReadOnlyEndsTheTraining) {
  testing::SmallDisk disk(directory_ / "disk", "size=10m");
  const fs::path checkpoint = disk / "checkpoint";
  train_until(checkpoint, [&] { return disk.make_read_only(); });
  EXPECT_THAT(output(), HasSubstr("Read-only file system"));
  expect_it_is_gone_on_from(checkpoint);
}

TEST_F(DiskTakenAway, ADirectoryThatIsMovedEndsTheTraining) {
  fs::create_directory(directory_ / "here");
  const fs::path checkpoint = directory_ / "here" / "checkpoint";
  train_until(checkpoint, [&] {
    fs::rename(directory_ / "here", directory_ / "there");
    return true;
  });
  EXPECT_THAT(output(), HasSubstr("No such file or directory"));
  expect_it_is_gone_on_from(directory_ / "there" / "checkpoint");
}

}  // namespace
}  // namespace vdnn::full_disk_test
