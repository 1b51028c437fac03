// A program that uses an allocator as PyTorch uses a pluggable one, on the stand-in for CUDA's runtime. It
// prints the same with our allocator as with one that calls cudaMalloc and cudaFree.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/dropin/programs_run.h"
#include "tests/extent.h"
#include "tests/temporary_directory.h"

namespace vdnn {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ProgramRun;
using ::testing::StartsWith;

constexpr const char* kOurs = VDNN_TORCH_LIBRARY " vdnn_torch";
constexpr const char* kPlain = VDNN_PLAIN_LIBRARY " plain";

std::string seed(std::uint64_t value) {
  return "VDNN_STAND_IN_SEED=" + std::to_string(value) + " ";
}

std::uint64_t orders() {
  return testing::extent({.usual = 20, .in_long_run = 200});
}

class TorchTest : public testing::TemporaryDirectory {
 protected:
  ProgramRun run(const std::string& library, const std::string& environment) {
    SCOPED_TRACE(environment + library);
    ProgramRun done = testing::run_program("torch_tensors " + library,
                                           "VDNN_STAND_IN_MEMORY=64MiB " + environment, directory_);
    if (library == kOurs) {
      std::erase_if(done.wrong, lives_as_long_as_the_process);
    }
    return done;
  }

  // Either the program works in spite of the failures, or it reports them.
  void expect_clean_end(const std::string& library, const std::string& failures) {
    const ProgramRun failing = run(library, failures);
    EXPECT_THAT(failing.failed, Not(IsEmpty())) << failures << library;
    EXPECT_THAT(failing.wrong, IsEmpty()) << failures << library << failing.outcome.text;
    if (failing.outcome.status == 0) {
      EXPECT_EQ(failing.outcome.text, run(kPlain, "").outcome.text) << failures << library;
    } else {
      EXPECT_EQ(failing.outcome.status, 3) << failures << library;
      EXPECT_THAT(failing.outcome.text, StartsWith("failed: ")) << failures << library;
    }
  }

 private:
  // PyTorch frees memory while the process ends, so our pools are never destroyed. They keep addresses,
  // events and a stream for the host's waits, but no memory.
  static bool lives_as_long_as_the_process(const std::string& line) {
    return line.starts_with("leak a reservation") || line == "leak an event" || line == "leak a stream";
  }
};

TEST_F(TorchTest, AProgramSaysTheSameInEveryOrder) {
  const std::string expected = run(kPlain, "").outcome.text;
  ASSERT_THAT(expected, StartsWith("checksum "));
  for (std::uint64_t i = 0; i < orders(); ++i) {
    for (const char* const library : {kPlain, kOurs}) {
      const ProgramRun done = run(library, seed(i));
      EXPECT_EQ(done.outcome.status, 0) << seed(i) << library;
      EXPECT_EQ(done.outcome.text, expected) << seed(i) << library;
      EXPECT_THAT(done.wrong, IsEmpty()) << seed(i) << library;
    }
  }
}

TEST_F(TorchTest, FailuresAreReportedAndLeaveNothing) {
  for (std::uint64_t i = 0; i < orders(); ++i) {
    for (const char* const library : {kPlain, kOurs}) {
      expect_clean_end(library, seed(i) + "VDNN_STAND_IN_FAIL_PERCENT=1 ");
    }
  }
}

// Makes every n-th call fail, for values of n from the number of calls downwards. With n above half that
// number, only one call fails. The long run tries every n.
TEST_F(TorchTest, NothingIsLeftWhicheverCallFails) {
  for (const char* const library : {kPlain, kOurs}) {
    const std::uint64_t calls = run(library, "").all_calls;
    const std::uint64_t tried = testing::extent({.usual = 50, .in_long_run = calls});
    for (std::uint64_t i = 0; i < tried; ++i) {
      expect_clean_end(library,
                       "VDNN_STAND_IN_FAIL_EVERY=" + std::to_string(calls - i * calls / tried) + " ");
    }
  }
}

// Regression: a refusal was a null pointer, which PyTorch treats as an address.
TEST_F(TorchTest, ARefusalIsTheExceptionOfThePyTorchInTheProcess) {
  const auto refusal = [&](const std::string& libraries) {
    return testing::run_program("torch_refusal " VDNN_TORCH_LIBRARY + libraries, "VDNN_STAND_IN_MEMORY=64MiB",
                                directory_)
        .outcome.text;
  };
  const std::string stubs = " " VDNN_TORCH_STUBS;
  const std::string of_device =
      "\nSt13runtime_error: cuda:99: there is no such GPU; the last of 1 is cuda:0\n";
  const auto out_of_memory = AllOf(StartsWith("N3c1016OutOfMemoryErrorE: CUDA out of memory. "),
                                   HasSubstr("asked 1 TiB"), HasSubstr("budget 64 MiB"));
  EXPECT_EQ(refusal(""), "null\nnull\n");
  EXPECT_THAT(refusal(stubs + "/newer/libc10.so"), AllOf(out_of_memory, EndsWith(of_device)));
  EXPECT_THAT(refusal(stubs + "/older/libc10.so" + stubs + "/older/libc10_cuda.so"),
              AllOf(out_of_memory, EndsWith(of_device)));
  EXPECT_THAT(refusal(stubs + "/other/libc10.so"),
              AllOf(StartsWith("St13runtime_error: CUDA out of memory. "), EndsWith(of_device)));
}

// Counts the calls that allocate or free CUDA's memory. The test prints the table of docs/allocator.md.
std::uint64_t memory_calls(const ProgramRun& run) {
  std::uint64_t count = 0;
  for (const auto& [name, made] : run.calls) {
    count += name == "cudaMalloc" || name == "cudaFree" || name.starts_with("cuMem") ? made : 0;
  }
  return count;
}

TEST_F(TorchTest, CallsOfTheRuntimeVanish) {
  const std::uint64_t plain = memory_calls(run(kPlain, ""));
  const ProgramRun ours = run(kOurs, "");
  std::printf("| torch_tensors | %d | %d |\n", static_cast<int>(plain), static_cast<int>(memory_calls(ours)));
  EXPECT_LT(memory_calls(ours), plain);
  EXPECT_EQ(ours.calls.count("cudaMalloc"), 0U);
}

}  // namespace
}  // namespace vdnn
