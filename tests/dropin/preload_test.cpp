// Programs built without knowledge of vdnn run with libvdnn_preload.so in front of CUDA's runtime. If they
// link the runtime statically, the library is in front of the driver. The programs print the same as without
// the library.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "tests/dropin/programs_run.h"
#include "tests/extent.h"
#include "tests/temporary_directory.h"

namespace vdnn {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ProgramRun;
using ::testing::StartsWith;
using ::testing::Values;

// How often a test runs a program. Each run has another order of the streams' work, or other failures.
std::uint64_t orders() {
  return testing::extent({.usual = 20, .in_long_run = 200});
}
std::uint64_t fewer_orders() {
  return testing::extent({.usual = 5, .in_long_run = 200});
}
constexpr const char* kMachine =
    "LD_LIBRARY_PATH=" VDNN_DRIVER " VDNN_STAND_IN_MEMORY=64MiB VDNN_STAND_IN_GPUS=2 ";
constexpr const char* kPreload = "LD_PRELOAD=" VDNN_PRELOAD " ";
// Like kPreload, but also preloads the driver, which then counts leaks after the library has ended. A driver
// that the program itself opens would count them before the library has given its memory back.
constexpr const char* kPreloadBeforeDriver = "LD_PRELOAD=" VDNN_PRELOAD ":" VDNN_DRIVER "/libcuda.so.1 ";

std::string seed(std::uint64_t value) {
  return "VDNN_STAND_IN_SEED=" + std::to_string(value) + " ";
}

// Counts the calls that allocate or free the runtime's memory.
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
  // The program prints the same as without the library, and leaves nothing allocated.
  void expect_same_in_any_order(const std::string& program) {
    const ProgramRun plain = run(program, "");
    ASSERT_THAT(plain.outcome.text, StartsWith("checksum ")) << program;
    for (std::uint64_t i = 0; i < fewer_orders(); ++i) {
      const ProgramRun preloaded = run(program, seed(i) + kPreloadBeforeDriver);
      EXPECT_EQ(preloaded.outcome.text, plain.outcome.text) << program << seed(i);
      EXPECT_THAT(preloaded.wrong, IsEmpty()) << program << seed(i);
    }
  }
};

class PreloadedProgramTest : public PreloadTest, public ::testing::WithParamInterface<const char*> {
 protected:
  // With each seed, the program prints the same as without the library and leaves nothing allocated.
  void expect_same(const std::string& environment, std::uint64_t seeds) {
    const std::string expected = run(GetParam(), "").outcome.text;
    ASSERT_THAT(expected, StartsWith("checksum "));
    EXPECT_EQ(run(GetParam(), kPreload + environment).outcome.text, expected);
    for (std::uint64_t i = 0; i < seeds; ++i) {
      const ProgramRun preloaded = run(GetParam(), seed(i) + kPreloadBeforeDriver + environment);
      EXPECT_EQ(preloaded.outcome.status, 0) << seed(i) << environment;
      EXPECT_EQ(preloaded.outcome.text, expected) << seed(i) << environment;
      EXPECT_THAT(preloaded.wrong, IsEmpty()) << seed(i) << environment;
    }
  }
};

TEST_P(PreloadedProgramTest, SaysTheSameInEveryOrder) {
  expect_same("", orders());
}

// All of these programs use cudaMalloc's memory only on the default stream, or wait before they free it.
TEST_P(PreloadedProgramTest, SaysTheSameWithoutSynchronisationInFree) {
  expect_same("VDNN_PRELOAD_FREE=ordered ", fewer_orders());
}

TEST_P(PreloadedProgramTest, AFailureOfTheRuntimeIsTheProgramsOwn) {
  // Failures before a pool exists, afterwards, and anywhere.
  for (const char* const failures :
       {"VDNN_STAND_IN_FAIL_EVERY=7 ", "VDNN_STAND_IN_FAIL_EVERY=61 ", "VDNN_STAND_IN_FAIL_PERCENT=3 "}) {
    for (std::uint64_t i = 0; i < fewer_orders(); ++i) {
      const ProgramRun failing = run(GetParam(), seed(i) + failures + kPreloadBeforeDriver);
      EXPECT_THAT(failing.failed, Not(IsEmpty()));
      EXPECT_THAT(failing.outcome.status, AnyOf(0, 3)) << seed(i) << failures << failing.outcome.text;
      EXPECT_THAT(failing.outcome.text, AnyOf(HasSubstr("checksum "), HasSubstr("failed: ")));
      EXPECT_THAT(failing.wrong, IsEmpty()) << seed(i) << failures << failing.outcome.text;
    }
  }
}

// With the library, most calls of the runtime vanish. The test prints rows of the table in docs/allocator.md.
TEST_P(PreloadedProgramTest, CallsOfTheRuntimeVanish) {
  const std::uint64_t without = memory_calls(run(GetParam(), ""));
  const std::uint64_t with = memory_calls(run(GetParam(), kPreloadBeforeDriver));
  std::printf("| %s | %d | %d |\n", std::strchr(GetParam(), '/') + 1, static_cast<int>(without),
              static_cast<int>(with));
  EXPECT_LT(with, without);
}

// The test's name for a program "folder/name": the name alone.
std::string name_of(const ::testing::TestParamInfo<const char*>& program) {
  std::string name = program.param;
  return name.substr(name.find('/') + 1);
}

INSTANTIATE_TEST_SUITE_P(Programs, PreloadedProgramTest,
                         Values("programs/one_stream", "programs/many_streams", "programs/pinned",
                                "programs/out_of_memory", "programs/threads", "programs/per_thread",
                                "programs/two_gpus", "programs/two_readers", "programs/graph",
                                "programs/graph_memory", "programs/kernels"),
                         name_of);
INSTANTIATE_TEST_SUITE_P(StaticPrograms, PreloadedProgramTest,
                         Values("static_programs/one_stream", "static_programs/many_streams",
                                "static_programs/pinned", "static_programs/out_of_memory",
                                "static_programs/threads", "static_programs/per_thread",
                                "static_programs/two_gpus", "static_programs/two_readers",
                                "static_programs/graph", "static_programs/graph_memory",
                                "static_programs/beside_capture", "static_programs/kernels"),
                         name_of);

TEST_F(PreloadTest, ABudgetIsTheMemoryThatAProgramSees) {
  const ProgramRun bounded =
      run("programs/out_of_memory", std::string(kPreload) + "VDNN_PRELOAD_MEMORY=32MiB");
  EXPECT_EQ(bounded.outcome.text, run("programs/out_of_memory", "").outcome.text);
  EXPECT_LE(bounded.calls.at("cuMemCreate"), 16U * 4);
}

// Regression: a thread in the global mode had another mode after memory had been mapped for it.
TEST_F(PreloadTest, AThreadsCaptureModeStaysWhatItWas) {
  for (const char* const program : {"programs/capture_mode", "static_programs/capture_mode"}) {
    const ProgramRun plain = run(program, "");
    EXPECT_THAT(plain.outcome.text, StartsWith("checksum "));
    const ProgramRun preloaded = run(program, kPreload);
    EXPECT_EQ(preloaded.outcome.text, plain.outcome.text) << program;
    EXPECT_GT(preloaded.calls.at("cuMemMap"), 0U);
  }
}

// Regression: to set the last error, the library asked the runtime for more memory than there was, which
// invalidated the capture.
TEST_F(PreloadTest, ARequestThatIsRefusedDisturbsNoCapture) {
  for (const char* const program : {"programs/refused_in_capture", "static_programs/refused_in_capture"}) {
    const ProgramRun plain = run(program, "");
    ASSERT_THAT(plain.outcome.text, StartsWith("checksum ")) << program;
    EXPECT_EQ(run(program, kPreload).outcome.text, plain.outcome.text) << program;
  }
}

// Regression: the memory was on the thread's GPU, and became free in the order of a stream of the wrong GPU.
TEST_F(PreloadTest, MemoryLiesOnTheGpuOfItsStream) {
  for (const char* const program : {"programs/other_gpus_streams", "static_programs/other_gpus_streams"}) {
    const ProgramRun plain = run(program, "");
    ASSERT_THAT(plain.outcome.text, StartsWith("checksum ")) << program;
    EXPECT_THAT(plain.wrong, IsEmpty()) << program;
    for (std::uint64_t i = 0; i < fewer_orders(); ++i) {
      const ProgramRun preloaded = run(program, seed(i) + kPreloadBeforeDriver);
      EXPECT_EQ(preloaded.outcome.text, plain.outcome.text) << program << seed(i);
      EXPECT_THAT(preloaded.wrong, IsEmpty()) << program << seed(i);
      EXPECT_FALSE(preloaded.calls.contains("cudaMallocAsync")) << program;
    }
  }
  const ProgramRun before_12_5 =
      run("programs/other_gpus_streams", "LD_LIBRARY_PATH=" VDNN_RUNTIME_OF_12_0 " " + std::string(kPreload));
  EXPECT_THAT(before_12_5.outcome.text, StartsWith("checksum "));
  EXPECT_THAT(before_12_5.wrong, IsEmpty());
}

// Regression: at its end, the child gave all memory back through CUDA, although a child must not call CUDA,
// and printed the summary.
TEST_F(PreloadTest, AChildOfForkLeavesCudaAlone) {
  for (const char* const program : {"programs/fork", "static_programs/fork"}) {
    const ProgramRun plain = run(program, "");
    ASSERT_THAT(plain.outcome.text, StartsWith("checksum ")) << program;
    const std::string file = directory_ / "summary";
    const ProgramRun preloaded = run(program, kPreloadBeforeDriver + ("VDNN_PRELOAD_SUMMARY=" + file));
    EXPECT_EQ(preloaded.outcome.text, plain.outcome.text) << program;
    EXPECT_THAT(preloaded.wrong, IsEmpty()) << program;
    EXPECT_THAT(read("summary"), HasSubstr("; 0 blocks not given back")) << "the parent's summary";
    EXPECT_EQ(run(program, std::string(kPreload) + "VDNN_PRELOAD_SUMMARY=1").outcome.text.find("GPU 0"),
              run(program, std::string(kPreload) + "VDNN_PRELOAD_SUMMARY=1").outcome.text.rfind("GPU 0"));
  }
}

// Regression: free memory that a pool kept was unavailable to everything else in the process
// (cudaErrorMemoryAllocation).
TEST_F(PreloadTest, MemoryThatIsGivenBackIsThereForOthers) {
  for (const char* const program : {"programs/given_back", "static_programs/given_back"}) {
    const ProgramRun plain = run(program, "");
    ASSERT_THAT(plain.outcome.text, StartsWith("checksum ")) << program;
    const ProgramRun preloaded = run(program, kPreloadBeforeDriver);
    EXPECT_EQ(preloaded.outcome.text, plain.outcome.text) << program;
    EXPECT_THAT(preloaded.wrong, IsEmpty()) << program;
  }
}

// Regression: the first cudaMalloc made the GPU's primary context current to the thread.
TEST_F(PreloadTest, AContextOfItsOwnStaysCurrentUnderTheSharedRuntime) {
  const ProgramRun plain = run("programs/own_context", "");
  ASSERT_THAT(plain.outcome.text, StartsWith("checksum "));
  for (const char* const gpus : {"", "VDNN_STAND_IN_GPUS=1 "}) {
    const ProgramRun preloaded = run("programs/own_context", std::string(kPreload) + gpus);
    EXPECT_EQ(preloaded.outcome.text, plain.outcome.text) << gpus;
    EXPECT_THAT(preloaded.wrong, IsEmpty()) << gpus;
  }
}

// Regression: after the reset, the pool used events and streams that no longer existed.
TEST_F(PreloadTest, AResetByItsOldNameIsOne) {
  const ProgramRun plain = run("programs/thread_exit", "");
  ASSERT_THAT(plain.outcome.text, StartsWith("checksum "));
  const ProgramRun preloaded = run("programs/thread_exit", kPreloadBeforeDriver);
  EXPECT_EQ(preloaded.outcome.text, plain.outcome.text);
  EXPECT_THAT(preloaded.wrong, IsEmpty());
}

// Regression: captures were counted. If a capture began or ended by a function without a hook, or by a reset
// of the GPU, the count stayed wrong forever. No memory became free any more, or a later capture was
// invalidated.
TEST_F(PreloadTest, CapturesThatEndUnseenHoldNothingUp) {
  for (const char* const program :
       {"programs/unseen_captures", "programs/reset_in_capture", "static_programs/reset_in_capture"}) {
    expect_same_in_any_order(program);
  }
}

// Regression: a capture was attributed to the thread's GPU instead of the stream's, and counted as ended
// after the reset of the thread's GPU.
TEST_F(PreloadTest, AResetLeavesCapturesOfOtherGpus) {
  for (const char* const program :
       {"programs/reset_beside_capture", "static_programs/reset_beside_capture"}) {
    expect_same_in_any_order(program);
  }
}

// Regression: only the GPU that owned the memory had access to it, in spite of cudaDeviceEnablePeerAccess.
TEST_F(PreloadTest, GpusThatReachEachOtherShareMemoryOfPools) {
  const ProgramRun plain = run("programs/peers", "");
  ASSERT_THAT(plain.outcome.text, StartsWith("checksum "));
  EXPECT_THAT(plain.wrong, IsEmpty());
  for (std::uint64_t i = 0; i < fewer_orders(); ++i) {
    const ProgramRun preloaded = run("programs/peers", seed(i) + kPreloadBeforeDriver);
    EXPECT_EQ(preloaded.outcome.text, plain.outcome.text) << seed(i);
    EXPECT_THAT(preloaded.wrong, IsEmpty()) << seed(i);
    EXPECT_FALSE(preloaded.calls.contains("cudaMalloc"));
  }
  const ProgramRun apart = run("programs/peers", std::string(kPreload) + "VDNN_PRELOAD_PEERS=0");
  EXPECT_THAT(apart.wrong, Contains(HasSubstr("no access to it")));
}

TEST_F(PreloadTest, ManagedMemoryStaysTheRuntimes) {
  const ProgramRun plain = run("programs/managed", "");
  ASSERT_THAT(plain.outcome.text, StartsWith("checksum "));
  const ProgramRun preloaded = run("programs/managed", kPreloadBeforeDriver);
  EXPECT_EQ(preloaded.outcome.text, plain.outcome.text);
  EXPECT_EQ(preloaded.calls.at("cudaMallocManaged"), plain.calls.at("cudaMallocManaged"));
  EXPECT_EQ(preloaded.calls.at("cudaFree"), plain.calls.at("cudaFree"));
  EXPECT_THAT(preloaded.wrong, IsEmpty());
}

// Regression: each ended stream left an event, and the cost of a request grew with the number of ended
// streams.
TEST_F(PreloadTest, StreamsThatComeAndGoLeaveNothingBehind) {
  for (const char* const program : {"programs/requests", "static_programs/requests"}) {
    const ProgramRun plain = run(program, "");
    EXPECT_THAT(plain.outcome.text, StartsWith("checksum "));
    const ProgramRun preloaded = run(program, kPreloadBeforeDriver);
    EXPECT_EQ(preloaded.outcome.text, plain.outcome.text) << program;
    EXPECT_THAT(preloaded.wrong, IsEmpty());
    EXPECT_LE(preloaded.calls.at("cudaEventCreateWithFlags"), 1024U);
    EXPECT_LE(preloaded.all_calls, 10 * plain.all_calls);
  }
}

TEST_F(PreloadTest, HandlesForOtherProcessesAreRefusedWithTheReason) {
  for (const char* const program : {"programs/ipc", "static_programs/ipc"}) {
    EXPECT_EQ(run(program, "").outcome.status, 0);
    const ProgramRun refused = run(program, kPreloadBeforeDriver);
    EXPECT_EQ(refused.outcome.status, 3);
    EXPECT_THAT(refused.outcome.text, HasSubstr("VDNN_PRELOAD_IPC=1"));
    EXPECT_THAT(refused.wrong, IsEmpty());
    const ProgramRun bypassing = run(program, std::string(kPreload) + "VDNN_PRELOAD_IPC=1");
    EXPECT_EQ(bypassing.outcome.text, run(program, "").outcome.text);
    EXPECT_EQ(bypassing.calls.at("cudaMalloc"), 1U);
    EXPECT_EQ(bypassing.calls.at("cudaFree"), 1U);
  }
}

TEST_F(PreloadTest, WithoutAPoolMemoryIsCudasAndOneMessageReportsIt) {
  const ProgramRun plain = run("programs/one_stream", "");
  const ProgramRun passing =
      run("programs/one_stream", std::string(kPreload) + "VDNN_STAND_IN_VIRTUAL_MEMORY=0");
  EXPECT_THAT(passing.outcome.text, StartsWith("vdnn preload: no pool for GPU 0, its memory is CUDA's: "));
  EXPECT_THAT(passing.outcome.text, HasSubstr("set VDNN_PRELOAD_MEMORY to its size\nchecksum "));
  EXPECT_THAT(passing.outcome.text, EndsWith(plain.outcome.text));
  EXPECT_EQ(passing.calls.at("cudaMalloc"), plain.calls.at("cudaMalloc"));
  EXPECT_EQ(passing.calls.at("cudaFree"), plain.calls.at("cudaFree"));
}

// Regression: this runtime got no pool, because it has no cudaGetDriverEntryPointByVersion.
TEST_F(PreloadTest, ARuntimeBeforeCuda12_5IsServed) {
  const ProgramRun served =
      run("programs/one_stream", "LD_LIBRARY_PATH=" VDNN_RUNTIME_OF_12_0 " " + std::string(kPreload));
  EXPECT_EQ(served.outcome.text, run("programs/one_stream", "").outcome.text);
  EXPECT_GT(served.calls.at("cudaGetDriverEntryPoint"), 0U);
  EXPECT_FALSE(served.calls.contains("cudaMalloc"));
  EXPECT_THAT(served.wrong, IsEmpty());
}

TEST_F(PreloadTest, WithoutVirtualMemoryAPoolAllocatesItsBudgetAtOnce) {
  const ProgramRun served =
      run("programs/one_stream",
          std::string(kPreload) + "VDNN_STAND_IN_VIRTUAL_MEMORY=0 VDNN_PRELOAD_MEMORY=64MiB");
  EXPECT_EQ(served.outcome.text, run("programs/one_stream", "").outcome.text);
  EXPECT_EQ(served.calls.at("cudaMalloc"), 1U);
  EXPECT_THAT(served.wrong, IsEmpty());
}

TEST_F(PreloadTest, AnUnknownSettingIsReportedAndNothingIsPooled) {
  const ProgramRun plain = run("programs/pinned", "");
  const ProgramRun passing = run("programs/pinned", std::string(kPreload) + "VDNN_PRELOAD_FREE=later");
  EXPECT_EQ(passing.outcome.text,
            "vdnn preload: VDNN_PRELOAD_FREE is 'later': ordered or synchronous; all memory is CUDA's\n" +
                plain.outcome.text);
  EXPECT_EQ(memory_calls(passing), memory_calls(plain));
}

TEST_F(PreloadTest, MisuseIsToldAsTheRuntimeTellsIt) {
  for (const char* const program : {"programs/wrong", "static_programs/wrong"}) {
    const ProgramRun wrong = run(program, kPreload);
    EXPECT_EQ(wrong.outcome.text, run(program, "").outcome.text);
  }
}

// Regression: exceptions of the heap left cudaMalloc, cudaStreamDestroy and the functions for page-locked
// memory, and ended the program.
TEST_F(PreloadTest, AnExhaustedHeapDoesNotAffectTheProgram) {
  for (const std::string program : {"programs/no_heap", "static_programs/no_heap"}) {
    const std::string expected = run(program, "").outcome.text;
    for (std::uint64_t every = 1; every <= 3 * orders(); ++every) {
      const ProgramRun failing = run(program + " " + std::to_string(every), kPreloadBeforeDriver);
      EXPECT_EQ(failing.outcome.status, 0) << program << every;
      EXPECT_THAT(failing.outcome.text, EndsWith(expected)) << program << every;
      EXPECT_THAT(failing.wrong, IsEmpty()) << program << every << failing.outcome.text;
    }
  }
}

// CUDA, not the pool, allocates memory in a context other than the GPU's primary one. Memory of the pool is
// freed to the pool, whichever context is current at that time.
TEST_F(PreloadTest, AContextOfItsOwnIsTheProgramsAffair) {
  const ProgramRun plain = run("static_programs/contexts", "");
  ASSERT_THAT(plain.outcome.text, StartsWith("checksum "));
  EXPECT_EQ(plain.calls.at("cudaMalloc"), 8U);
  for (std::uint64_t i = 0; i < orders(); ++i) {
    const ProgramRun preloaded = run("static_programs/contexts", seed(i) + kPreloadBeforeDriver);
    EXPECT_EQ(preloaded.outcome.text, plain.outcome.text);
    EXPECT_EQ(preloaded.calls.at("cudaMalloc"), 2U);
    EXPECT_EQ(preloaded.calls.at("cudaFree"), 2U);
    EXPECT_FALSE(preloaded.calls.contains("cudaMallocAsync"));
    EXPECT_THAT(preloaded.wrong, IsEmpty());
  }
}

// Regression: libraries passed memory of a pool to the driver, which did not know it. Page-locked memory that
// the cache held for the program was handed to another user. A plugin's runtime was called after it was
// unloaded.
TEST_F(PreloadTest, AProgramAndItsLibraryShareMemory) {
  const ProgramRun plain = run("static_programs/shared_memory", "");
  ASSERT_THAT(plain.outcome.text, StartsWith("checksum "));
  for (const char* const who : {"", "VDNN_PRELOAD_LIBRARIES=1"}) {
    const ProgramRun preloaded =
        run("static_programs/shared_memory", std::string(kPreloadBeforeDriver) + who);
    EXPECT_EQ(preloaded.outcome.status, 0);
    EXPECT_EQ(preloaded.outcome.text, plain.outcome.text);
    EXPECT_FALSE(preloaded.calls.contains("cudaMalloc"));
    EXPECT_EQ(preloaded.wrong, plain.wrong);  // double frees
  }
}

// A program that looks up symbols finds the same symbols as without the library.
TEST_F(PreloadTest, LookUpsOfOthersAreTheLoadersOwn) {
  EXPECT_EQ(run("programs/look_up", "").outcome.text, "next: runtime\nabsent: not found\n");
  EXPECT_EQ(run("programs/look_up", kPreload).outcome.text, "next: preloaded\nabsent: not found\n");
}

// Regression: the last function of that name that any library had looked up replaced the driver's function.
TEST_F(PreloadTest, FunctionsOfTheDriversNamesMayBeOthers) {
  const ProgramRun plain = run("static_programs/namesakes", "");
  ASSERT_THAT(plain.outcome.text, StartsWith("checksum "));
  const ProgramRun preloaded = run("static_programs/namesakes", kPreloadBeforeDriver);
  EXPECT_EQ(preloaded.outcome.text, plain.outcome.text);
  EXPECT_THAT(preloaded.wrong, IsEmpty());
}

// A library with a runtime inside gets the pool's memory only on request, since it may share memory with
// other processes, as communicators do.
TEST_F(PreloadTest, LibrariesWithARuntimeInsideAreServedWhereThatIsAskedFor) {
  const ProgramRun plain = run("static_programs/host", "");
  ASSERT_THAT(plain.outcome.text, StartsWith("checksum "));
  const ProgramRun left_alone = run("static_programs/host", kPreload);
  EXPECT_EQ(left_alone.outcome.text, plain.outcome.text);
  EXPECT_EQ(left_alone.calls.at("cudaMalloc"), plain.calls.at("cudaMalloc"));
  const ProgramRun served =
      run("static_programs/host", std::string(kPreloadBeforeDriver) + "VDNN_PRELOAD_LIBRARIES=1");
  EXPECT_EQ(served.outcome.text, plain.outcome.text);
  EXPECT_FALSE(served.calls.contains("cudaMalloc"));
  EXPECT_THAT(served.wrong, IsEmpty());
}

// The toolkit's own static runtime does not start on the stand-in, but it does look up the driver's
// functions. The shared runtime does not look them up, because the library is in front of it.
TEST_F(PreloadTest, TheToolkitsStaticRuntimeIsGivenOurFunctions) {
  const std::string environment = std::string(kPreload) + "LD_LIBRARY_PATH=" VDNN_DRIVER
                                                          " VDNN_PRELOAD_LIBRARIES=1 VDNN_PRELOAD_SUMMARY=1 ";
  // CUDA 13.0's runtime looks up 21 functions: all of ours except cuMemAllocHost.
  EXPECT_THAT(testing::run_process(environment + VDNN_STATIC_EXAMPLE).text,
              ContainsRegex("vdnn preload: 2[1-9] functions looked up in the driver\n"));
  EXPECT_THAT(testing::run_process(environment + VDNN_SHARED_EXAMPLE).text,
              HasSubstr("vdnn preload: 0 functions looked up in the driver\n"));
}

TEST_F(PreloadTest, ASummaryOnRequest) {
  const std::string file = directory_ / "summary";
  const ProgramRun quiet = run("programs/pinned", std::string(kPreload) + "VDNN_PRELOAD_SUMMARY=" + file);
  EXPECT_EQ(quiet.outcome.text, run("programs/pinned", "").outcome.text);
  const std::string summary = read("summary");
  EXPECT_THAT(summary, HasSubstr("cudaMalloc: 40 calls, 0 passed on\n"));
  EXPECT_THAT(summary, HasSubstr("cudaMallocHost, cudaHostAlloc: 80 calls, 20 passed on\n"));
  EXPECT_THAT(summary, HasSubstr("GPU 0: at most "));
  EXPECT_THAT(summary, HasSubstr("; 0 blocks not given back"));
  EXPECT_THAT(run("programs/pinned", std::string(kPreload) + "VDNN_PRELOAD_SUMMARY=1").outcome.text,
              HasSubstr("vdnn preload: cudaFree: 40 calls, 0 passed on\n"));
}

}  // namespace
}  // namespace vdnn
