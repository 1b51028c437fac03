// `vdnn run -- PROGRAM` runs the program with libvdnn_preload.so preloaded, and returns its exit status.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/process.h"

namespace vdnn {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_process;
using ::testing::StartsWith;

const std::string kProgram = VDNN_PROGRAMS "/programs/one_stream";

Outcome run(const std::string& arguments) {
  return run_process("LD_LIBRARY_PATH=" VDNN_DRIVER " VDNN_STAND_IN_MEMORY=64MiB " VDNN_COMMAND " run " +
                     arguments);
}

TEST(RunCommand, TheProgramSaysTheSameAndThePoolServesIt) {
  const Outcome plain = run_process("VDNN_STAND_IN_MEMORY=64MiB " + kProgram);
  ASSERT_THAT(plain.text, StartsWith("checksum "));
  EXPECT_EQ(run("-- " + kProgram).text, plain.text);
  const Outcome summed = run("--summary 1 --memory 16MiB --ordered-free -- " + kProgram);
  EXPECT_EQ(summed.status, 0);
  EXPECT_THAT(summed.text, HasSubstr(plain.text));
  EXPECT_THAT(summed.text, HasSubstr("cudaMalloc: 158 calls, 0 passed on"));
}

TEST(RunCommand, OptionsReachThePreloadedLibrary) {
  EXPECT_THAT(run("--summary 1 --ipc -- " + kProgram).text, HasSubstr("cudaFree: 158 calls, 158 passed on"));
  EXPECT_THAT(run("--summary 1 --host-cache 0 -- " VDNN_PROGRAMS "/programs/pinned").text,
              HasSubstr("cudaMallocHost, cudaHostAlloc: 0 calls"));
}

TEST(RunCommand, OtherGpusGetAccessOrNot) {
  const std::string report = ::testing::TempDir() + "run_command_report";
  const auto wrong = [&](const std::string& options) {
    return run_process("VDNN_STAND_IN_GPUS=2 VDNN_STAND_IN_REPORT=" + report +
                       " LD_LIBRARY_PATH=" VDNN_DRIVER " " VDNN_COMMAND " run " + options +
                       "-- " VDNN_PROGRAMS "/programs/peers; grep -c finding " + report)
        .text;
  };
  EXPECT_THAT(wrong(""), EndsWith("\n0\n"));
  EXPECT_THAT(wrong("--no-peers "), Not(EndsWith("\n0\n")));
}

TEST(RunCommand, ProgramsAndLibrariesWithARuntimeInsideAreServed) {
  EXPECT_THAT(run("--summary 1 -- " VDNN_PROGRAMS "/static_programs/one_stream").text,
              HasSubstr("cudaMalloc: 158 calls, 0 passed on"));
  EXPECT_THAT(run("--summary 1 -- " VDNN_PROGRAMS "/static_programs/host").text,
              HasSubstr("cudaMalloc: 0 calls"));
  EXPECT_THAT(run("--summary 1 --libraries -- " VDNN_PROGRAMS "/static_programs/host").text,
              HasSubstr("cudaMalloc: 158 calls, 0 passed on"));
}

TEST(RunCommand, TheExitStatusIsTheProgramsAndItsArgumentsAreItsOwn) {
  EXPECT_EQ(run("-- sh -c 'exit 7'").status, 7);
  EXPECT_EQ(run("-- echo --memory x").text, "--memory x\n");
}

TEST(RunCommand, WhatCannotRunIsBadUsage) {
  const Outcome absent = run("-- /nonexistent/program");
  EXPECT_EQ(absent.status, 2);
  EXPECT_THAT(absent.text, HasSubstr("cannot run /nonexistent/program: No such file or directory"));
  EXPECT_EQ(run("").status, 2);
  EXPECT_EQ(run("--memory much -- " + kProgram).status, 2);
}

}  // namespace
}  // namespace vdnn
