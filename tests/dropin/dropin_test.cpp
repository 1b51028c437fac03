// Programs built without knowledge of vdnn, on the stand-in for CUDA's runtime.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/dropin/programs_run.h"
#include "tests/temporary_directory.h"

namespace vdnn {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using testing::ProgramRun;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;
using ::testing::Values;

constexpr const char* kMemory = "VDNN_STAND_IN_MEMORY=64MiB ";
constexpr std::uint64_t kSeeds = 10;

class StandInTest : public testing::TemporaryDirectory {
 protected:
  ProgramRun run(const std::string& program, const std::string& environment) {
    SCOPED_TRACE(environment + " " + program);
    return testing::run_program(program, kMemory + environment, directory_);
  }
};

class DropinTest : public StandInTest, public ::testing::WithParamInterface<const char*> {
 protected:
  ProgramRun run(const std::string& environment) { return StandInTest::run(GetParam(), environment); }
};

std::string seed(std::uint64_t value) {
  return "VDNN_STAND_IN_SEED=" + std::to_string(value) + " ";
}

TEST_P(DropinTest, AProgramSaysTheSameInEveryOrder) {
  const ProgramRun first = run(seed(0));
  EXPECT_THAT(first.outcome.text, StartsWith("checksum "));
  for (std::uint64_t i = 0; i < kSeeds; ++i) {
    const ProgramRun again = run(seed(i));
    EXPECT_EQ(again.outcome.status, 0);
    EXPECT_EQ(again.outcome.text, first.outcome.text) << seed(i);
    EXPECT_THAT(again.wrong, IsEmpty()) << seed(i);
    EXPECT_EQ(again.calls, first.calls) << seed(i);
  }
}

// This also checks the programs themselves: they see the failures, and leave nothing allocated.
TEST_P(DropinTest, AProgramIsToldOfFailuresAndLeavesNothing) {
  for (const char* const failures : {"VDNN_STAND_IN_FAIL_EVERY=7", "VDNN_STAND_IN_FAIL_PERCENT=3"}) {
    for (std::uint64_t i = 0; i < kSeeds / 3; ++i) {
      const ProgramRun failing = run(seed(i) + failures);
      EXPECT_THAT(failing.failed, Not(IsEmpty()));
      EXPECT_THAT(failing.outcome.status, AnyOf(0, 3)) << seed(i) << failures;
      EXPECT_THAT(failing.outcome.text, AnyOf(StartsWith("checksum "), StartsWith("failed: ")));
      EXPECT_THAT(failing.wrong, IsEmpty()) << seed(i) << failures << "\n" << failing.outcome.text;
    }
  }
}

// Regression: if the end of a capture failed, the capture continued, and its streams could not be destroyed.
TEST_F(StandInTest, AProgramWhoseCaptureFailsLeavesNothing) {
  std::set<std::string> refused;
  for (int every = 8; every < 40; ++every) {
    const ProgramRun failing = run("graph", "VDNN_STAND_IN_FAIL_EVERY=" + std::to_string(every));
    EXPECT_THAT(failing.wrong, IsEmpty()) << every << "\n" << failing.outcome.text;
    refused.insert(failing.failed.begin(), failing.failed.end());
  }
  EXPECT_THAT(refused, IsSupersetOf({"cudaStreamBeginCapture", "cudaEventRecord", "cudaStreamEndCapture",
                                     "cudaGraphInstantiate", "cudaGraphLaunch"}));
}

// Regression: a thread inherited the GPU, the capture mode and the last error of a thread that had ended.
TEST_F(StandInTest, ProgramsOfSeveralGpusSayTheSameInEveryOrder) {
  for (const char* const program : {"managed", "successor"}) {
    const std::string expected = run(program, "VDNN_STAND_IN_GPUS=2").outcome.text;
    EXPECT_THAT(expected, StartsWith("checksum ")) << program;
    for (std::uint64_t i = 0; i < kSeeds; ++i) {
      const ProgramRun again = run(program, seed(i) + "VDNN_STAND_IN_GPUS=2");
      EXPECT_EQ(again.outcome.text, expected) << seed(i);
      EXPECT_THAT(again.wrong, IsEmpty()) << seed(i);
    }
  }
}

// The other tests rely on the stand-in to report these misuses.
TEST_F(StandInTest, WhatAProgramDoesWrongIsReported) {
  const ProgramRun wrong = run("wrong", "");
  EXPECT_EQ(wrong.outcome.status, 0);
  EXPECT_THAT(wrong.wrong,
              UnorderedElementsAre("leak an allocation of 1000 bytes", "misuse cudaFree: no such memory",
                                   AllOf(StartsWith("finding "), HasSubstr("a memset"))));
  EXPECT_EQ(wrong.calls.at("cudaMalloc"), 3U);
}

// Regression: an exception left the call and terminated the process.
TEST_F(StandInTest, WhatTheStandInCannotHoldIsAnErrorAndReported) {
  const ProgramRun pushed = run("many_contexts", "");
  EXPECT_EQ(pushed.outcome.status, 0) << pushed.outcome.text;
  EXPECT_THAT(pushed.wrong, ElementsAre(StartsWith("misuse cuCtxPushCurrent: ")));
}

INSTANTIATE_TEST_SUITE_P(Programs, DropinTest,
                         Values("one_stream", "many_streams", "pinned", "out_of_memory", "threads",
                                "per_thread", "graph", "graph_memory", "beside_capture", "kernels"),
                         [](const auto& program) { return std::string(program.param); });

}  // namespace
}  // namespace vdnn
