#include "src/report/output_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "tests/temporary_directory.h"
#include "vdnn/error.h"

namespace vdnn::output_path_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string problem(const fs::path& path) {
  try {
    check_output_path(path);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

class OutputPathTest : public testing::TemporaryDirectory {};

TEST_F(OutputPathTest, ANewFileIsFineAndIsNotLeftBehind) {
  check_output_path(directory_ / "new.json");
  EXPECT_TRUE(empty());
}

TEST_F(OutputPathTest, AnOldFileIsFineAndStaysAsItIs) {
  write("old.json", "precious");
  check_output_path(directory_ / "old.json");
  EXPECT_EQ(read("old.json"), "precious");
}

TEST_F(OutputPathTest, ABareNameIsInTheWorkingDirectory) {
  const fs::path before = fs::current_path();
  fs::current_path(directory_);
  EXPECT_NO_THROW(check_output_path("new.json"));
  EXPECT_TRUE(empty());
  fs::current_path(before);
}

// Several commands may check the same place at once; each creates the file for a moment.
TEST_F(OutputPathTest, APlaceThatOthersTryIsFine) {
  const fs::path path = directory_ / "log.json";
  std::vector<std::thread> others;
  for (int each = 0; each < 4; ++each) {
    others.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        EXPECT_NO_THROW(check_output_path(path));
      }
    });
  }
  std::ranges::for_each(others, &std::thread::join);
  EXPECT_TRUE(empty());
}

TEST_F(OutputPathTest, DevicesAreFine) {
  EXPECT_NO_THROW(check_output_path("/dev/null"));
}

TEST_F(OutputPathTest, ADirectoryInTheWayIsNamed) {
  fs::create_directory(directory_ / "taken");
  const std::string path = (directory_ / "taken").string();
  EXPECT_THAT(problem(path), AllOf(HasSubstr("'" + path + "'"), HasSubstr("is a directory")));
  EXPECT_THAT(problem(path + "/"), HasSubstr("is a directory"));
  EXPECT_THAT(problem(directory_ / "absent/"), HasSubstr("is a directory"));
}

TEST_F(OutputPathTest, AMissingDirectoryIsNamed) {
  const std::string path = (directory_ / "absent" / "file").string();
  EXPECT_THAT(problem(path), AllOf(HasSubstr("'" + path + "'"), HasSubstr("there is no directory"),
                                   HasSubstr((directory_ / "absent").string() + "'")));
  EXPECT_TRUE(empty());
}

TEST_F(OutputPathTest, AFileWhereADirectoryIsNeededIsNamed) {
  write("file", "precious");
  EXPECT_THAT(problem(directory_ / "file" / "out.json"),
              AllOf(HasSubstr((directory_ / "file").string() + "' is not a directory")));
  EXPECT_EQ(read("file"), "precious");
}

TEST_F(OutputPathTest, AnEmptyPathIsRefused) {
  EXPECT_THAT(problem(""), HasSubstr("empty"));
}

// /proc exists, is a directory, and permits root to write. Only an attempt to create a file fails.
TEST_F(OutputPathTest, AFileSystemThatCreatesNothingIsFound) {
  if (!fs::exists("/proc/self")) {
    GTEST_SKIP() << "there is no /proc here";
  }
  EXPECT_THAT(problem("/proc/vdnn.json"), HasSubstr("'/proc/vdnn.json'"));
}

TEST_F(OutputPathTest, MissingPermissionIsFound) {
  if (::geteuid() == 0) {
    GTEST_SKIP() << "root may write everywhere";
  }
  write("file", "precious");
  fs::permissions(directory_ / "file", fs::perms::owner_read);
  EXPECT_THAT(problem(directory_ / "file"), HasSubstr("Permission denied"));
  fs::permissions(directory_, fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_THAT(problem(directory_ / "new"), HasSubstr("Permission denied"));
  fs::permissions(directory_, fs::perms::owner_all);
}

}  // namespace
}  // namespace vdnn::output_path_test
