// Atomic files on file systems that do not respond, respond late or respond inconsistently.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "src/base/atomic_file.h"
#include "tests/crash/system_calls.h"
#include "tests/temporary_directory.h"
#include "vdnn/error.h"

namespace vdnn {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class FileCalls : public testing::TemporaryDirectory {
 protected:
  void TearDown() override {
    testing::fail_call(0, 0);
    TemporaryDirectory::TearDown();
  }

  fs::path target() const { return directory_ / "target"; }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(directory_), {}));
  }

  // Calls `arm`, then creates a file, and returns the error's text.
  template <class Arm>
  std::string error_with(const Arm& arm) const {
    arm();
    std::string error;
    try {
      const AtomicFile file(target());
    } catch (const DataError& caught) {
      error = caught.what();
    }
    testing::fail_call(0, 0);
    return error;
  }
  // The numbers, from 1, of the calls of `name` during a creation.
  std::vector<std::uint64_t> calls_named(const std::string& name) const {
    testing::record_calls();
    { const AtomicFile file(target()); }
    std::vector<std::uint64_t> result;
    const std::vector<std::string>& calls = testing::recorded_calls();
    for (std::size_t call = 0; call < calls.size(); ++call) {
      if (calls[call] == name) {
        result.push_back(call + 1);
      }
    }
    return result;
  }
};

// Regression: any error of fstatat counted as a missing file, so the replacement of a private file became
// readable for all.
TEST_F(FileCalls, WhatIsReplacedHasToBeKnown) {
  write("target", "private");
  ASSERT_EQ(::chmod(target().c_str(), 0600), 0);
  const std::uint64_t call = calls_named("fstatat").front();
  EXPECT_THAT(error_with([&] { testing::fail_call(call, EIO); }), HasSubstr("Input/output error"));
  EXPECT_EQ(error_with([&] { testing::fail_call(call, ENOENT); }), "");
  EXPECT_EQ(files(), 1U);
  EXPECT_EQ(read("target"), "private");
}

// Regression: if the new file could not be examined, its name counted as taken: the next name was tried, and
// the file was left behind. On a file system that never answered, this went on forever.
TEST_F(FileCalls, AFileThatCannotBeLookedAtIsGivenUp) {
  write("target", "previous");
  for (const char* const name : {"fstat", "fstatat"}) {
    const std::uint64_t call = calls_named(name).back();
    EXPECT_THAT(error_with([&] { testing::fail_call(call, EIO); }), HasSubstr("Input/output error")) << name;
    EXPECT_EQ(files(), 1U) << name;
  }
}

// Regression: the creation tried names forever, because no name ever referred to the new file.
TEST_F(FileCalls, CreationEndsIfNamesNeverReferToTheNewFile) {
  write("target", "previous");
  constexpr std::size_t kMost = 1'000;
  for (int writer = 0; writer < 2; ++writer) {
    EXPECT_THAT(error_with(testing::disguise_names), HasSubstr("refer to other files"));
    EXPECT_EQ(files(), 1 + kMost);
  }
  EXPECT_EQ(read("target"), "previous");
  AtomicFile(target()).commit();
  EXPECT_EQ(files(), 1U);
}

// Regression: a lock interrupted by a signal was not retried, so this writer's file looked abandoned.
TEST_F(FileCalls, SignalsAndShortWritesChangeNothing) {
  constexpr std::array<std::byte, 5> kBytes{};
  testing::disturb_calls();
  AtomicFile file(target());
  file.write(kBytes);
  EXPECT_EQ(std::ranges::count(testing::recorded_calls(), "write"), 3) << "by halves: 3, 1 and 1";
  testing::fail_call(0, 0);
  const AtomicFile other(target());
  EXPECT_EQ(files(), 2U);
  testing::disturb_calls();
  file.commit();
  EXPECT_EQ(fs::file_size(target()), kBytes.size());
}

}  // namespace
}  // namespace vdnn
