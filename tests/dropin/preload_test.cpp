// Programs that were built without knowledge of us, with libvdnn_preload.so in front of CUDA's runtime: they
// print what they print without it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tests/dropin/programs_run.h"
#include "tests/extent.h"
#include "tests/temporary_directory.h"

namespace vdnn {
namespace {

using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ProgramRun;
using ::testing::StartsWith;
using ::testing::Values;

// Of the orders that a program runs in, and of the failures that it meets.
std::uint64_t orders() {
  return testing::extent({.usual = 20, .in_long_run = 200});
}
std::uint64_t fewer_orders() {
  return testing::extent({.usual = 5, .in_long_run = 200});
}
constexpr const char* kMachine = "VDNN_STAND_IN_MEMORY=64MiB VDNN_STAND_IN_GPUS=2 ";
constexpr const char* kPreload = "LD_PRELOAD=" VDNN_PRELOAD " ";

std::string seed(std::uint64_t value) {
  return "VDNN_STAND_IN_SEED=" + std::to_string(value) + " ";
}

// What takes memory of the runtime or gives it back.
std::uint64_t memory_calls(const ProgramRun& run) {
  std::uint64_t count = 0;
  for (const auto& [name, made] : run.calls) {
    const bool counts = name.starts_with("cudaMalloc") || name.starts_with("cudaFree") ||
                        name == "cudaHostAlloc" || name.starts_with("cuMem");
    count += counts ? made : 0;
  }
  return count;
}

class PreloadTest : public testing::TemporaryDirectory {
 protected:
  ProgramRun run(const std::string& program, const std::string& environment) {
    SCOPED_TRACE(environment + program);
    return testing::run_program(program, kMachine + environment, directory_);
  }
};

class PreloadedProgramTest : public PreloadTest, public ::testing::WithParamInterface<const char*> {
 protected:
  // The program, by seed, says the same as without us and leaves nothing.
  void expect_same(const std::string& environment, std::uint64_t seeds) {
    const std::string expected = run(GetParam(), "").outcome.text;
    ASSERT_THAT(expected, StartsWith("checksum "));
    for (std::uint64_t i = 0; i < seeds; ++i) {
      const ProgramRun preloaded = run(GetParam(), seed(i) + kPreload + environment);
      EXPECT_EQ(preloaded.outcome.status, 0) << seed(i) << environment;
      EXPECT_EQ(preloaded.outcome.text, expected) << seed(i) << environment;
      EXPECT_THAT(preloaded.wrong, IsEmpty()) << seed(i) << environment;
    }
  }
};

TEST_P(PreloadedProgramTest, SaysTheSameInEveryOrder) {
  expect_same("", orders());
}

// All of these use what cudaMalloc gives on the default stream alone, or wait before they free it.
TEST_P(PreloadedProgramTest, SaysTheSameWithoutSynchronisationInFree) {
  expect_same("VDNN_PRELOAD_FREE=ordered ", fewer_orders());
}

TEST_P(PreloadedProgramTest, AFailureOfTheRuntimeIsTheProgramsOwn) {
  // Before there is a pool, after, and anywhere.
  for (const char* const failures :
       {"VDNN_STAND_IN_FAIL_EVERY=7 ", "VDNN_STAND_IN_FAIL_EVERY=61 ", "VDNN_STAND_IN_FAIL_PERCENT=3 "}) {
    for (std::uint64_t i = 0; i < fewer_orders(); ++i) {
      const ProgramRun failing = run(GetParam(), seed(i) + failures + kPreload);
      EXPECT_THAT(failing.failed, Not(IsEmpty()));
      EXPECT_THAT(failing.outcome.status, AnyOf(0, 3)) << seed(i) << failures << failing.outcome.text;
      EXPECT_THAT(failing.outcome.text, AnyOf(HasSubstr("checksum "), HasSubstr("failed: ")));
      EXPECT_THAT(failing.wrong, IsEmpty()) << seed(i) << failures << failing.outcome.text;
    }
  }
}

// The calls of the runtime that vanish; the test's output is the table of docs/allocator.md.
TEST_P(PreloadedProgramTest, CallsOfTheRuntimeVanish) {
  const std::uint64_t without = memory_calls(run(GetParam(), ""));
  const std::uint64_t with = memory_calls(run(GetParam(), kPreload));
  std::printf("| %s | %d | %d |\n", GetParam(), static_cast<int>(without), static_cast<int>(with));
  EXPECT_LT(with, without);
}

INSTANTIATE_TEST_SUITE_P(Programs, PreloadedProgramTest,
                         Values("one_stream", "many_streams", "pinned", "out_of_memory", "threads",
                                "per_thread", "two_gpus", "two_readers", "graph", "kernels"),
                         [](const auto& program) { return std::string(program.param); });

TEST_F(PreloadTest, ABudgetIsTheMemoryThatAProgramSees) {
  const ProgramRun bounded = run("out_of_memory", std::string(kPreload) + "VDNN_PRELOAD_MEMORY=32MiB");
  EXPECT_EQ(bounded.outcome.text, run("out_of_memory", "").outcome.text);
  EXPECT_LE(bounded.calls.at("cuMemCreate"), 16U * 4);
}

TEST_F(PreloadTest, HandlesForOtherProcessesAreRefusedWithTheReason) {
  EXPECT_EQ(run("ipc", "").outcome.status, 0);
  const ProgramRun refused = run("ipc", kPreload);
  EXPECT_EQ(refused.outcome.status, 3);
  EXPECT_THAT(refused.outcome.text, HasSubstr("VDNN_PRELOAD_IPC=1"));
  EXPECT_THAT(refused.wrong, IsEmpty());
  const ProgramRun bypassing = run("ipc", std::string(kPreload) + "VDNN_PRELOAD_IPC=1");
  EXPECT_EQ(bypassing.outcome.text, run("ipc", "").outcome.text);
  EXPECT_EQ(bypassing.calls.at("cudaMalloc"), 1U);
  EXPECT_EQ(bypassing.calls.at("cudaFree"), 1U);
}

TEST_F(PreloadTest, WithoutAPoolEverythingIsCudasAndThatIsSaidOnce) {
  const ProgramRun plain = run("one_stream", "");
  const ProgramRun passing = run("one_stream", std::string(kPreload) + "VDNN_STAND_IN_VIRTUAL_MEMORY=0");
  EXPECT_THAT(passing.outcome.text, StartsWith("vdnn preload: no pool for GPU 0, its memory is CUDA's: "));
  EXPECT_THAT(passing.outcome.text, HasSubstr("must say how much\nchecksum "));
  EXPECT_THAT(passing.outcome.text, EndsWith(plain.outcome.text));
  EXPECT_EQ(passing.calls.at("cudaMalloc"), plain.calls.at("cudaMalloc"));
  EXPECT_EQ(passing.calls.at("cudaFree"), plain.calls.at("cudaFree"));
}

TEST_F(PreloadTest, WithoutVirtualMemoryAPoolTakesWhatItIsToldToAtOnce) {
  const ProgramRun served =
      run("one_stream", std::string(kPreload) + "VDNN_STAND_IN_VIRTUAL_MEMORY=0 VDNN_PRELOAD_MEMORY=64MiB");
  EXPECT_EQ(served.outcome.text, run("one_stream", "").outcome.text);
  EXPECT_EQ(served.calls.at("cudaMalloc"), 1U);
  EXPECT_THAT(served.wrong, IsEmpty());
}

TEST_F(PreloadTest, ASettingThatIsNoneIsSaidAndNothingIsPooled) {
  const ProgramRun plain = run("pinned", "");
  const ProgramRun passing = run("pinned", std::string(kPreload) + "VDNN_PRELOAD_FREE=later");
  EXPECT_EQ(passing.outcome.text,
            "vdnn preload: VDNN_PRELOAD_FREE is 'later': ordered or synchronous; all memory is CUDA's\n" +
                plain.outcome.text);
  EXPECT_EQ(memory_calls(passing), memory_calls(plain));
}

TEST_F(PreloadTest, MisuseIsToldAsTheRuntimeTellsIt) {
  const ProgramRun wrong = run("wrong", kPreload);
  EXPECT_EQ(wrong.outcome.text, run("wrong", "").outcome.text);
}

// Exceptions of the heap came out of cudaMalloc, cudaStreamDestroy and whatever takes page-locked memory, and
// ended the program.
TEST_F(PreloadTest, AnExhaustedHeapIsNotTheProgramsMatter) {
  const std::string expected = run("no_heap", "").outcome.text;
  for (std::uint64_t every = 1; every <= 3 * orders(); ++every) {
    const ProgramRun failing = run("no_heap " + std::to_string(every), kPreload);
    EXPECT_EQ(failing.outcome.status, 0) << every;
    EXPECT_THAT(failing.outcome.text, EndsWith(expected)) << every;
    EXPECT_THAT(failing.wrong, IsEmpty()) << every << failing.outcome.text;
  }
}

TEST_F(PreloadTest, ASummaryOnRequest) {
  const std::string file = directory_ / "summary";
  const ProgramRun quiet = run("pinned", std::string(kPreload) + "VDNN_PRELOAD_SUMMARY=" + file);
  EXPECT_EQ(quiet.outcome.text, run("pinned", "").outcome.text);
  const std::string summary = read("summary");
  EXPECT_THAT(summary, HasSubstr("cudaMalloc: 40 calls, 0 passed on\n"));
  EXPECT_THAT(summary, HasSubstr("cudaMallocHost, cudaHostAlloc: 80 calls, 20 passed on\n"));
  EXPECT_THAT(summary, HasSubstr("GPU 0: at most "));
  EXPECT_THAT(summary, HasSubstr("; 0 blocks not given back"));
  EXPECT_THAT(run("pinned", std::string(kPreload) + "VDNN_PRELOAD_SUMMARY=1").outcome.text,
              HasSubstr("vdnn preload: cudaFree: 40 calls, 0 passed on\n"));
}

}  // namespace
}  // namespace vdnn
