// The drop-in examples, on the stand-in for CUDA's runtime. Each prints what its first lines promise, in
// whatever order its streams run, and ends cleanly whichever call fails.

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
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
using ::testing::Not;
using testing::ProgramRun;

constexpr const char* kStandIn = "LD_PRELOAD=" VDNN_STAND_IN " ";

std::string seed(std::uint64_t value) {
  return "VDNN_STAND_IN_SEED=" + std::to_string(value) + " ";
}

std::uint64_t orders() {
  return testing::extent({.usual = 10, .in_long_run = 200});
}

struct Example {
  const char* name;
  // The expected end of the example's output. It has no results of kernels, which the stand-in does not
  // execute.
  const char* end;
};

constexpr Example kExamples[] = {
    // The sum of 100,000 bytes for each of the values 0 to 19.
    {"pool_in_c", "sum             19000000\nblocks          20\ngrowths         1\nnot given back  0\n"},
    // The sum of 10,000 numbers for each of the values 0 to 19.
    {"pinned_vector", "sum         1900000\nvectors     40\npage locks  2\n"},
    // For each v from 0 to 19, the sum of 10,000 + v bytes of the value v.
    {"memory_resource",
     "sum             1902470\nblocks          20\ngrowths         1\nnot given back  0\n"},
    {"thrust_and_cub", "blocks          40\ngrowths         1\nnot given back  0\n"},
    // The sum of memory_resource, plus 20 buffers of one million bytes of the value 1.
    {"plain_cuda", "sum  21902470\n"}};

class DropinExamples : public testing::TemporaryDirectory {
 protected:
  ProgramRun run(const std::string& name, const std::string& environment) {
    SCOPED_TRACE(environment + name);
    return testing::run_program(name, environment, directory_);
  }
};

class DropinExample : public DropinExamples, public ::testing::WithParamInterface<Example> {
 protected:
  // With `failures`, the example either works in spite of them or reports them.
  ProgramRun expect_clean_end(const std::string& failures) {
    ProgramRun done = run(GetParam().name, failures + kStandIn);
    EXPECT_THAT(done.wrong, IsEmpty()) << failures << done.outcome.text;
    if (done.outcome.status == 0) {
      EXPECT_THAT(done.outcome.text, EndsWith(GetParam().end)) << failures;
    } else {
      EXPECT_EQ(done.outcome.status, 1) << failures;
      EXPECT_THAT(done.outcome.text, HasSubstr(std::string(GetParam().name) + ": ")) << failures;
    }
    return done;
  }
};

TEST_P(DropinExample, PrintsTheSameInEveryOrder) {
  for (std::uint64_t i = 0; i < orders(); ++i) {
    const ProgramRun done = run(GetParam().name, seed(i) + kStandIn);
    EXPECT_EQ(done.outcome.status, 0) << seed(i);
    EXPECT_THAT(done.outcome.text, EndsWith(GetParam().end)) << seed(i);
    EXPECT_THAT(done.wrong, IsEmpty()) << seed(i);
  }
}

TEST_P(DropinExample, SaysWhatHasFailedAndLeavesNothing) {
  for (std::uint64_t i = 0; i < orders(); ++i) {
    expect_clean_end(seed(i) + "VDNN_STAND_IN_FAIL_PERCENT=3 ");
  }
}

// Makes every n-th call fail, for values of n from the number of calls downwards. With n above half that
// number, only one call fails. The long run tries every n.
TEST_P(DropinExample, LeavesNothingWhicheverCallFails) {
  const std::uint64_t calls = run(GetParam().name, kStandIn).all_calls;
  const std::uint64_t tried = testing::extent({.usual = 20, .in_long_run = calls});
  for (std::uint64_t i = 0; i < tried; ++i) {
    const std::string every = "VDNN_STAND_IN_FAIL_EVERY=" + std::to_string(calls - i * calls / tried) + " ";
    EXPECT_THAT(expect_clean_end(every).failed, Not(IsEmpty())) << every;
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, DropinExample, ::testing::ValuesIn(kExamples),
                         [](const auto& example) { return std::string(example.param.name); });

// Runs the example as `vdnn run -- plain_cuda` does (tests/dropin/run_command_test.cpp).
TEST_F(DropinExamples, PlainCudaIsServedByThePreloadedPool) {
  const ProgramRun served =
      run("plain_cuda", "VDNN_PRELOAD_SUMMARY=1 LD_PRELOAD=" VDNN_PRELOAD ":" VDNN_STAND_IN);
  EXPECT_THAT(served.outcome.text, HasSubstr("sum  21902470\n"));
  EXPECT_THAT(served.outcome.text, HasSubstr("cudaMalloc: 40 calls, 0 passed on"));
  EXPECT_EQ(served.calls.count("cudaMalloc"), 0U);
  EXPECT_EQ(run("plain_cuda", kStandIn).calls.at("cudaMalloc"), 40U);
}

constexpr const char* kPythonExample = VDNN_PYTHON " " VDNN_PYTHON_EXAMPLE " ";

TEST_F(DropinExamples, PythonReachesThePoolByTheSharedLibrary) {
  const std::filesystem::path report = directory_ / "report";
  const std::string on_stand_in = std::string("VDNN_STAND_IN_REPORT=") + report.string() + " " +
                                  kPythonExample + VDNN_ALLOCATOR_ON_STAND_IN;
  const testing::Outcome done = testing::run_process(on_stand_in);
  EXPECT_EQ(done.text,
            "granule         2097152\nbudget          67108864\n"
            "blocks          20\ngrowths         1\nnot given back  0\n");
  EXPECT_EQ(done.status, 0);
  ProgramRun run;
  testing::read_report(report, run);
  EXPECT_EQ(run.calls.at("cuMemCreate"), 2U);
  EXPECT_EQ(run.calls.at("cuMemRelease"), 2U);
  EXPECT_THAT(run.wrong, IsEmpty());
  const testing::Outcome failing = testing::run_process("VDNN_STAND_IN_FAIL_EVERY=5 " + on_stand_in);
  EXPECT_EQ(failing.status, 1);
  EXPECT_THAT(failing.text, HasSubstr("pool_in_python: "));
}

// Without a GPU, the library reports this when it makes a pool. With a GPU, it works.
TEST_F(DropinExamples, TheSharedLibraryNeedsNoCudaToLoad) {
  void* const library = dlopen(VDNN_ALLOCATOR_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  for (const char* const cuda : {"libcuda.so.1", "libcudart.so.12", "libcudart.so.13"}) {
    EXPECT_EQ(dlopen(cuda, RTLD_NOW | RTLD_NOLOAD), nullptr) << cuda;
  }
  std::ifstream file(VDNN_ALLOCATOR_HEADER);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::regex declared(R"(\n(?:vdnn_status|const char\*) (vdnn_\w+)\()");
  std::size_t functions = 0;
  for (std::sregex_iterator match(text.begin(), text.end(), declared), end; match != end; ++match) {
    EXPECT_NE(dlsym(library, match->str(1).c_str()), nullptr) << match->str(1);
    ++functions;
  }
  EXPECT_EQ(functions, 27U);
  EXPECT_EQ(dlsym(library, "cudaMalloc"), nullptr);
  dlclose(library);
  const testing::Outcome run = testing::run_process(kPythonExample + std::string(VDNN_ALLOCATOR_LIBRARY));
  EXPECT_THAT(run.text, AnyOf(HasSubstr("pool_in_python: cuda:0: "), EndsWith("not given back  0\n")));
}

// The example uses only hooks that the library has; the test needs no PyTorch.
TEST(PytorchExample, AsksForHooksThatAreThere) {
  std::ifstream file(VDNN_PYTORCH_EXAMPLE);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::regex hook(R"(vdnn_torch_\w+)");
  std::set<std::string> names;
  for (std::sregex_iterator match(text.begin(), text.end(), hook), end; match != end; ++match) {
    names.insert(match->str());
  }
  void* const library = dlopen(VDNN_TORCH_LIBRARY, RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  for (const std::string& name : names) {
    EXPECT_NE(dlsym(library, name.c_str()), nullptr) << name;
  }
  EXPECT_EQ(names.size(), 12U) << "all that allocator/dropin/torch/torch_hooks.h declares";
  dlclose(library);
}

}  // namespace
}  // namespace vdnn
