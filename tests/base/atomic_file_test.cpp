#include "src/base/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tests/temporary_directory.h"
#include "vdnn/error.h"

namespace vdnn {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class AtomicFileTest : public vdnn::testing::TemporaryDirectory {
 protected:
  mode_t mode_of(const std::string& name) const {
    struct stat status {};
    EXPECT_EQ(::stat((directory_ / name).c_str(), &status), 0);
    return status.st_mode & 07777;
  }
};

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::size_t files_in(const fs::path& directory) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(directory), {}));
}

template <class Action>
std::string data_error_of(const Action& action) {
  try {
    action();
  } catch (const DataError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no DataError";
  return {};
}

// While this object lives, files cannot grow beyond `bytes`. It imitates a full disk without root: the system
// call fails with EFBIG instead of ENOSPC.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() {
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before_), 0);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_F(AtomicFileTest, ReplacesTheTargetAtCommitOnly) {
  write("target", "before");
  AtomicFile file(directory_ / "target");
  file.write(bytes_of("aft"));
  file.write({});
  file.write(bytes_of("er!"));
  EXPECT_EQ(read("target"), "before");
  file.commit();
  EXPECT_EQ(read("target"), "after!");
  EXPECT_EQ(files_in(directory_), 1U);
}

TEST_F(AtomicFileTest, LeavesNothingWithoutCommit) {
  {
    AtomicFile file(directory_ / "target");
    file.write(bytes_of("lost"));
    EXPECT_EQ(files_in(directory_), 1U);
  }
  EXPECT_TRUE(empty());
}

TEST_F(AtomicFileTest, KeepsTheTargetWithoutCommit) {
  write("target", "before");
  { AtomicFile(directory_ / "target").write(bytes_of("lost")); }
  EXPECT_EQ(read("target"), "before");
  EXPECT_EQ(files_in(directory_), 1U);
}

TEST_F(AtomicFileTest, HasThePermissionsOfAnyNewFile) {
  const mode_t before = ::umask(027);
  AtomicFile file(directory_ / "target");
  ::umask(before);
  file.commit();
  EXPECT_EQ(mode_of("target"), 0640U);
}

// Regression: a second save replaced a private file's permissions by those of a new file.
TEST_F(AtomicFileTest, KeepsThePermissionsOfWhatItReplaces) {
  write("target", "private");
  for (const mode_t mode : {0600U, 0640U, 0666U}) {
    ASSERT_EQ(::chmod((directory_ / "target").c_str(), mode), 0);
    AtomicFile file(directory_ / "target");
    EXPECT_EQ(mode_of("target.vdnn-tmp0"), mode) << "while it is written";
    file.commit();
    EXPECT_EQ(mode_of("target"), mode);
  }
}

// Regression: each killed process left a file of a checkpoint's size forever.
TEST_F(AtomicFileTest, WhatKilledProcessesLeftIsRemoved) {
  for (const char* const name : {"target.vdnn-tmp0", "target.vdnn-tmp1", "target.vdnn-tmp27"}) {
    write(name, "half");
  }
  const AtomicFile file(directory_ / "target");
  EXPECT_EQ(files_in(directory_), 1U);
}

TEST_F(AtomicFileTest, WhatIsNotOfTheSameTargetIsKept) {
  const std::vector<std::string> others = {
      "target",          "target.tmp0",       "target.vdnn-tmp",   "target.vdnn-tmp0a", "targets.vdnn-tmp0",
      "other.vdnn-tmp0", "target.vdnn-tmp-1", "x.target.vdnn-tmp0"};
  for (const std::string& name : others) {
    write(name, "theirs");
  }
  fs::create_symlink("target", directory_ / "target.vdnn-tmp0");
  fs::create_directory(directory_ / "target.vdnn-tmp1");
  ASSERT_EQ(::mkfifo((directory_ / "target.vdnn-tmp2").c_str(), 0600), 0);
  { const AtomicFile file(directory_ / "target"); }
  EXPECT_EQ(files_in(directory_), others.size() + 3);
  for (const std::string& name : others) {
    EXPECT_EQ(read(name), "theirs") << name;
  }
}

// Writes in another process, which a test can kill while its file is open and locked.
class OtherWriter {
 public:
  explicit OtherWriter(const fs::path& target) {
    std::array<int, 2> ready{};
    EXPECT_EQ(::pipe(ready.data()), 0);
    process_ = ::fork();
    if (process_ == 0) {
      AtomicFile file(target);
      file.write(bytes_of("theirs"));
      ::close(ready[1]);
      ::pause();
      ::_exit(0);
    }
    ::close(ready[1]);
    char nothing = 0;
    EXPECT_EQ(::read(ready[0], &nothing, 1), 0) << "waits until the other process has written";
    ::close(ready[0]);
  }
  ~OtherWriter() { kill(); }
  OtherWriter(const OtherWriter&) = delete;
  OtherWriter& operator=(const OtherWriter&) = delete;

  void kill() {
    if (process_ > 0) {
      ::kill(process_, SIGKILL);
      ::waitpid(process_, nullptr, 0);
      process_ = -1;
    }
  }

 private:
  pid_t process_ = -1;
};

TEST_F(AtomicFileTest, WhatALiveProcessWritesIsKeptUntilItIsKilled) {
  OtherWriter other(directory_ / "target");
  AtomicFile(directory_ / "target").commit();
  EXPECT_EQ(read("target.vdnn-tmp0"), "theirs");
  EXPECT_EQ(read("target"), "");
  other.kill();
  AtomicFile(directory_ / "target").commit();
  EXPECT_EQ(files_in(directory_), 1U);
}

TEST_F(AtomicFileTest, TheLastOfTwoWritersWins) {
  AtomicFile first(directory_ / "target");
  AtomicFile second(directory_ / "target");
  second.write(bytes_of("second"));
  first.write(bytes_of("first"));
  second.commit();
  EXPECT_EQ(read("target"), "second");
  first.commit();
  EXPECT_EQ(read("target"), "first");
  EXPECT_EQ(files_in(directory_), 1U);
}

TEST_F(AtomicFileTest, ALinkIsReplacedNotFollowed) {
  write("elsewhere", "kept");
  fs::create_symlink("elsewhere", directory_ / "target");
  AtomicFile file(directory_ / "target");
  file.write(bytes_of("new"));
  file.commit();
  EXPECT_EQ(read("target"), "new");
  EXPECT_FALSE(fs::is_symlink(directory_ / "target"));
  EXPECT_EQ(read("elsewhere"), "kept");
}

class WorkingDirectory {
 public:
  explicit WorkingDirectory(const fs::path& path) : before_(fs::current_path()) { fs::current_path(path); }
  ~WorkingDirectory() { fs::current_path(before_); }
  WorkingDirectory(const WorkingDirectory&) = delete;
  WorkingDirectory& operator=(const WorkingDirectory&) = delete;

 private:
  fs::path before_;
};

TEST_F(AtomicFileTest, ARelativePathMeansWhatItMeantAtFirst) {
  fs::create_directory(directory_ / "other");
  const WorkingDirectory start(directory_);
  AtomicFile file("target");
  fs::current_path("other");
  file.write(bytes_of("here"));
  file.commit();
  EXPECT_EQ(read("target"), "here");
  EXPECT_TRUE(fs::is_empty(directory_ / "other"));
}

TEST_F(AtomicFileTest, AFullDiskLeavesThePreviousFile) {
  write("target", "before");
  AtomicFile file(directory_ / "target");
  file.write(bytes_of("12345678"));
  const std::vector<std::byte> much(1000);
  std::string message;
  {
    const FileSizeLimit limit(100);
    message = data_error_of([&] { file.write(much); });
  }
  EXPECT_THAT(message, AllOf(HasSubstr((directory_ / "target").string()), HasSubstr("File too large"),
                             HasSubstr("after 100 bytes")));
  EXPECT_EQ(read("target"), "before");
  EXPECT_EQ(files_in(directory_), 1U) << "the partial file still uses disk space";
}

TEST_F(AtomicFileTest, AfterAnErrorNothingIsCommitted) {
  AtomicFile file(directory_ / "target");
  const std::vector<std::byte> much(1000);
  {
    const FileSizeLimit limit(100);
    EXPECT_THROW(file.write(much), DataError);
  }
  EXPECT_THROW(file.write(much), InvalidArgument);
  EXPECT_THROW(file.commit(), InvalidArgument);
  EXPECT_TRUE(empty());
}

TEST_F(AtomicFileTest, AfterCommitNothingIsWritten) {
  AtomicFile file(directory_ / "target");
  file.commit();
  EXPECT_THROW(file.write(bytes_of("late")), InvalidArgument);
  EXPECT_THROW(file.commit(), InvalidArgument);
  EXPECT_EQ(read("target"), "");
}

TEST_F(AtomicFileTest, RefusesWhatCannotBeReplaced) {
  write("file", "x");
  fs::create_directory(directory_ / "directory");
  const auto refusal = [&](const fs::path& path) {
    return data_error_of([&] { const AtomicFile file(path); });
  };
  EXPECT_THAT(refusal(directory_ / "missing" / "target"),
              AllOf(HasSubstr("missing/target"), HasSubstr("No such file or directory")));
  EXPECT_THAT(refusal(directory_ / "file" / "target"), HasSubstr("Not a directory"));
  EXPECT_THAT(refusal(directory_ / "directory"), HasSubstr("Is a directory"));
  EXPECT_THAT(refusal(directory_ / "directory/"), HasSubstr("names no file"));
  EXPECT_THAT(refusal(""), HasSubstr("names no file"));
  EXPECT_THAT(refusal(directory_ / std::string(255, 'n')), HasSubstr("File name too long"));
  EXPECT_EQ(files_in(directory_), 2U);
}

// Renaming would put a regular file in the device's place, for all users of the machine.
TEST_F(AtomicFileTest, RefusesADevice) {
  EXPECT_THAT(data_error_of([] { const AtomicFile file("/dev/full"); }),
              AllOf(HasSubstr("/dev/full"), HasSubstr("not a regular file")));
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

TEST_F(AtomicFileTest, ATargetThatBecomesADirectoryIsAnErrorAtCommit) {
  AtomicFile file(directory_ / "target");
  file.write(bytes_of("12345678"));
  fs::create_directory(directory_ / "target");
  EXPECT_THAT(data_error_of([&] { file.commit(); }),
              AllOf(HasSubstr("renaming"), HasSubstr("Is a directory"), HasSubstr("after 8 bytes")));
  EXPECT_TRUE(fs::is_directory(directory_ / "target"));
  EXPECT_EQ(files_in(directory_), 1U);
}

TEST_F(AtomicFileTest, ADirectoryThatIsRemovedIsAnErrorAtCommit) {
  fs::create_directory(directory_ / "short-lived");
  AtomicFile file(directory_ / "short-lived" / "target");
  fs::remove_all(directory_ / "short-lived");
  EXPECT_THAT(data_error_of([&] { file.commit(); }), HasSubstr("No such file or directory"));
}

// Starts a process that writes the same file over and over. It exits with 0 unless something fails.
pid_t start_writing(const fs::path& target, char letter, int times) {
  const pid_t process = ::fork();
  if (process == 0) {
    try {
      const std::string text(10'000, letter);
      for (int time = 0; time < times; ++time) {
        AtomicFile file(target);
        file.write(bytes_of(text));
        file.commit();
      }
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      ::_exit(1);
    }
    ::_exit(0);
  }
  return process;
}

// Each process sees files of the other processes while these files are created, locked, renamed or abandoned.
TEST_F(AtomicFileTest, WritersSideBySideDoNotRemoveWhatTheOthersWrite) {
  const fs::path target = directory_ / "target";
  std::vector<pid_t> writers;
  for (const char letter : {'a', 'b', 'c'}) {
    writers.push_back(start_writing(target, letter, 40));
  }
  for (int killed = 0; killed < 20; ++killed) {
    const pid_t process = start_writing(target, 'k', 40);
    ::usleep(static_cast<useconds_t>(100 * killed));
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
  }
  for (const pid_t writer : writers) {
    int status = -1;
    ::waitpid(writer, &status, 0);
    EXPECT_EQ(status, 0);
  }
  AtomicFile(target).write({});
  EXPECT_EQ(files_in(directory_), 1U) << "a killed writer's file was not removed";
  const std::string text = read("target");
  EXPECT_EQ(text, std::string(10'000, text.empty() ? '?' : text.front()));
}

}  // namespace
}  // namespace vdnn
