// Ranks that are processes, started by mpirun. Tests that collectives work. Tests that any failure ends the
// job on all ranks in time, with a message that names rank and cause. (host_communicator_test covers failures
// of collectives in detail.)

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <regex>
#include <string>
#include <thread>

#include "tests/extent.h"
#include "tests/mpirun.h"

namespace vdnn {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int kTimedOut = 124;

int count(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  return static_cast<int>(std::distance(std::sregex_iterator(text.begin(), text.end(), regex), {}));
}

class Mpi : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = testing::why_no_mpirun(); !why.empty()) {
      GTEST_SKIP() << why;
    }
  }

  // Fails the test if the run does not end by itself or leaves a process running.
  static testing::Outcome run(int ranks, const std::string& scenario) {
    constexpr int kSeconds = 200;  // the longest wait takes seconds; a busy machine needs more
    testing::Outcome outcome =
        testing::run_process(testing::mpirun(ranks, VDNN_MPI_RANK " " + scenario, kSeconds));
    EXPECT_NE(outcome.status, kTimedOut) << outcome.text;
    const std::regex pid("pid ([0-9]+)");
    for (std::sregex_iterator match(outcome.text.begin(), outcome.text.end(), pid), end; match != end;
         ++match) {
      EXPECT_TRUE(gone((*match)[1])) << "process " << (*match)[1] << " is left running";
    }
    return outcome;
  }

 private:
  // Waits, because processes that are killed do not disappear at once.
  static bool gone(const std::string& pid) {
    constexpr int kTries = 600;
    for (int i = 0; i < kTries; ++i) {
      if (!std::filesystem::exists("/proc/" + pid + "/exe")) {  // a zombie has no exe either
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return false;
  }
};

class MpiRanks : public Mpi, public ::testing::WithParamInterface<int> {};

INSTANTIATE_TEST_SUITE_P(Ranks, MpiRanks, ::testing::Values(1, 2, 3, 4), ::testing::PrintToStringParamName());

TEST_P(MpiRanks, ReduceBroadcastAndGather) {
  const testing::Outcome outcome = run(GetParam(), "works");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  for (int rank = 0; rank < GetParam(); ++rank) {
    EXPECT_THAT(outcome.text, HasSubstr("all is well on rank " + std::to_string(rank) + " of " +
                                        std::to_string(GetParam())));
  }
}

// Regression: MPI ended the job, because hardly any call is allowed after MPI_Finalize.
TEST_F(Mpi, JoiningAgainSaysThatMpiHasEnded) {
  const testing::Outcome outcome = run(2, "joins_twice");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_EQ(count(outcome.text, "MPI has been finalized in this process"), 2) << outcome.text;
}

TEST_F(Mpi, JoinsAProgramThatCallsMpiFromSeveralThreads) {
  const testing::Outcome outcome = run(2, "own_mpi_of_many_threads");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_EQ(count(outcome.text, "all is well"), 2) << outcome.text;
}

// Collectives call MPI on their own threads, so the program cannot serialise its calls with ours.
TEST_F(Mpi, RefusesAProgramThatMayCallMpiFromOneThreadAtATime) {
  const testing::Outcome outcome = run(2, "own_mpi_of_one_thread_at_a_time");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_EQ(count(outcome.text, "MPI_THREAD_MULTIPLE"), 2) << outcome.text;
}

// mpirun is the first to notice, and reports the killed rank.
TEST_F(Mpi, ARankThatIsKilledEndsTheJob) {
  const testing::Outcome outcome = run(3, "dies");
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("rank 1"), HasSubstr("signal 9")));
}

// The rank dies while a communicator is made, in a collective, or between two collectives. (It does not die
// while it connects to mpirun: mpirun 4.1.4 would then end the other ranks, report the death, and hang.)
TEST_F(Mpi, ARankThatIsKilledAtAnyMomentEndsTheJob) {
  constexpr int kLatestMilliseconds = 300;
  std::mt19937 random(1);
  std::uniform_int_distribution<int> moment(0, kLatestMilliseconds);
  for (std::uint64_t i = 0; i < testing::extent({.usual = 5, .in_long_run = 20}); ++i) {
    const std::string milliseconds = std::to_string(moment(random));
    SCOPED_TRACE("after " + milliseconds + " ms");
    const testing::Outcome outcome = run(4, "dies_after " + milliseconds);
    EXPECT_NE(outcome.status, 0);
    EXPECT_THAT(outcome.text, AllOf(HasSubstr("rank 1"), HasSubstr("signal 9")));
  }
}

TEST_F(Mpi, ARankThatIsKilledBeforeItReachesMpiEndsTheJob) {
  const testing::Outcome outcome = run(3, "dies_first");
  EXPECT_NE(outcome.status, 0);
  // If a rank is killed this early, mpirun may report that a process has ended without naming the process.
  EXPECT_THAT(outcome.text, AnyOf(AllOf(HasSubstr("rank 1"), HasSubstr("signal 9")),
                                  HasSubstr("1 process returned\na non-zero exit code")));
}

TEST_F(Mpi, ARankThatExitsEndsTheJob) {
  const testing::Outcome outcome = run(3, "exits");
  EXPECT_EQ(outcome.status, 7) << outcome.text;
}

class MpiHangs : public Mpi, public ::testing::WithParamInterface<const char*> {};

INSTANTIATE_TEST_SUITE_P(In, MpiHangs, ::testing::Values("hangs", "stops"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(MpiHangs, TheOthersEndTheJobAndNameTheRank) {
  const testing::Outcome outcome = run(3, GetParam());
  EXPECT_EQ(outcome.status, 5) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("'sum' of 390.6 KiB (400000 bytes): heard nothing from rank 1 (on "));
  EXPECT_THAT(outcome.text, HasSubstr("for 10 s"));
}

// Regression: the time for which a job was suspended counted towards its ranks' timeout.
TEST_F(Mpi, RanksThatWereStoppedTogetherGoOn) {
  const testing::Outcome outcome = run(3, "stop_together");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_EQ(count(outcome.text, "gone on"), 3) << outcome.text;
}

TEST_F(Mpi, ARankThatHangsOutsideOfCollectivesIsNamedToo) {
  const testing::Outcome outcome = run(3, "hangs_in_barrier");
  EXPECT_EQ(outcome.status, 5) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("ends the job: rank"));
  EXPECT_THAT(outcome.text, HasSubstr("the checkpoint: heard nothing from rank 1 (on "));
}

TEST_F(Mpi, ARankThatGivesUpIsTheOneThatSaysWhy) {
  const testing::Outcome outcome = run(4, "throws");
  EXPECT_EQ(outcome.status, 5) << outcome.text;
  EXPECT_EQ(count(outcome.text, "vdnn: rank 1 of 4 on [^ ]+ ends the job: the data set ended"), 1)
      << outcome.text;
  EXPECT_EQ(count(outcome.text, "ends the job"), 1) << outcome.text;
}

TEST_F(Mpi, ARankThatNeverJoinsEndsTheJob) {
  const testing::Outcome outcome = run(2, "never_joins");
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.text, HasSubstr("MPI_Init_thread: not all ranks have started within 10 s"));
}

}  // namespace
}  // namespace vdnn
