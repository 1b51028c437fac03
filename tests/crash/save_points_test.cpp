// Kills a save at every point where a file changes: before each system call, and in the middle of each write.
// The file must then be the previous checkpoint or the new one, byte for byte, and the next save must
// succeed.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "src/base/atomic_file.h"
#include "tests/crash/system_calls.h"
#include "tests/temporary_directory.h"
#include "vdnn/checkpoint.h"
#include "vdnn/network.h"
#include "vdnn/planned_run.h"
#include "vdnn/session.h"

namespace vdnn {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kPreviousSeed = 1;
constexpr std::uint64_t kNewSeed = 2;

Network small() {
  NetworkBuilder net("small", {2, 2, 6, 6});
  const Tensor x = net.convolution("conv1", net.input(),
                                   {.filters = 3, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}});
  net.softmax_cross_entropy("loss", net.fully_connected("fc", net.relu("relu1", x), {.outputs = 4}));
  return std::move(net).build();
}

void save(
    const fs::path& path, std::uint64_t seed, const std::function<void()>& before = [] {}) {
  constexpr std::uint64_t kAmple = 64 << 20;
  const RunOptions ample{.device = "cpu", .memory_bytes = kAmple, .host_memory_bytes = kAmple, .threads = 1};
  Session session(plan_run(small(), ample), {.seed = seed});
  before();
  save_checkpoint(path, session);
}

enum class End { kDone, kKilled, kFailed };

// Runs `action` in a child process. Call it while this process has one thread, since threads do not survive a
// fork().
End in_a_child(const std::function<void()>& action) {
  const pid_t child = ::fork();
  if (child == 0) {
    int status = 0;
    try {
      action();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      status = 1;
    }
    ::_exit(status);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
    return End::kKilled;
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? End::kDone : End::kFailed;
}

// The parameter is whether there is a previous checkpoint.
class SavePoints : public testing::TemporaryDirectory, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    TemporaryDirectory::SetUp();
    ASSERT_EQ(in_a_child([&] { save(directory_ / "previous", kPreviousSeed); }), End::kDone);
    ASSERT_EQ(in_a_child([&] { save(directory_ / "new", kNewSeed); }), End::kDone);
    previous_ = read("previous");
    new_ = read("new");
    ASSERT_NE(previous_, new_);
  }

  fs::path saves() const { return directory_ / "saves"; }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(saves())) {
      names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    return names;
  }

  // Calls `arm`, saves over the previous checkpoint, and checks the invariants of any outcome.
  End save_and_check(const std::function<void()>& arm) {
    fs::remove_all(saves());
    fs::create_directory(saves());
    if (GetParam()) {
      fs::copy_file(directory_ / "previous", saves() / "checkpoint");
    }
    const End end = in_a_child([&] { save(saves() / "checkpoint", kNewSeed, arm); });
    EXPECT_NE(end, End::kFailed);
    const bool is_new = fs::exists(saves() / "checkpoint") && read("saves/checkpoint") == new_;
    if (!is_new) {
      EXPECT_EQ(fs::exists(saves() / "checkpoint"), GetParam());
      EXPECT_EQ(read("saves/checkpoint"), GetParam() ? previous_ : "");
    }
    EXPECT_TRUE(is_new || end == End::kKilled);
    replaced_ += is_new ? 1 : 0;
    left_behind_ += files().size() - (fs::exists(saves() / "checkpoint") ? 1 : 0);
    EXPECT_EQ(in_a_child([&] { save(saves() / "checkpoint", kNewSeed); }), End::kDone);
    EXPECT_EQ(files(), std::vector<std::string>{"checkpoint"});
    EXPECT_EQ(read("saves/checkpoint"), new_);
    return end;
  }

  // Kills at the first point, the second and so on, until a save completes. Returns the number of points.
  std::uint64_t kill_at_every(void (*arm)(std::uint64_t)) {
    std::uint64_t point = 1;
    while (save_and_check([&] { arm(point); }) == End::kKilled && !HasFailure()) {
      SCOPED_TRACE(point);
      ++point;
    }
    return point - 1;
  }

  std::string previous_;
  std::string new_;
  std::uint64_t replaced_ = 0;     // saves after which the new checkpoint is there, complete ones included
  std::uint64_t left_behind_ = 0;  // files of killed saves
};

INSTANTIATE_TEST_SUITE_P(, SavePoints, ::testing::Bool(), [](const auto& test) {
  return test.param ? std::string("OverAnother") : std::string("ForTheFirstTime");
});

TEST_P(SavePoints, LeaveOneWholeCheckpoint) {
  const std::uint64_t calls = kill_at_every(testing::die_before_call);
  const std::uint64_t writes = kill_at_every(testing::die_within_write);
  std::printf(
      "%s: killed before each of %llu system calls and within each of %llu writes: %llu left a "
      "file behind, %llu the new checkpoint\n",
      GetParam() ? "over another" : "for the first time", static_cast<unsigned long long>(calls),
      static_cast<unsigned long long>(writes), static_cast<unsigned long long>(left_behind_),
      static_cast<unsigned long long>(replaced_ - 2));
  // One write each for header, length, four parameters and their momenta.
  EXPECT_GE(writes, 10U);
  EXPECT_GE(calls, writes + 4);
  EXPECT_GE(left_behind_, writes) << "no save was killed while it wrote";
  EXPECT_GE(replaced_, 3U) << "no save was killed after the new checkpoint was in place";
}

// A killed process loses nothing that the system has accepted, but a failing machine loses data. So the order
// of calls matters, too.
using SaveOrder = testing::TemporaryDirectory;

TEST_F(SaveOrder, BytesAreOnTheDiskBeforeTheNameAndTheNameBeforeTheEnd) {
  AtomicFile file(directory_ / "file");
  testing::record_calls();
  file.write({});
  constexpr std::array<std::byte, 3> kBytes{};
  file.write(kBytes);
  file.commit();
  EXPECT_EQ(testing::recorded_calls(),
            (std::vector<std::string>{"write", "fsync", "close", "renameat", "close", "fsync"}));
}

}  // namespace
}  // namespace vdnn
