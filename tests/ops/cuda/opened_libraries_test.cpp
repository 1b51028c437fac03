// The libraries that a query for engines opens. cudnn-frontend's Graph::check_support() itself looks for a
// CUDA runtime. It throws if it finds the runtimes of both CUDA 12 and 13, which a Python environment may
// have. In this test it would find both, since the program intercepts dlopen(). Code that needs a GPU does
// not run here, so the test also searches the sources.

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "src/ops/cuda/convolution_engines.h"
#include "src/ops/cuda/known_gpus.h"
#include "tests/ops/cuda/listed_engines.h"

namespace {

std::vector<std::string>& opened() {
  static std::vector<std::string> names;
  return names;
}

bool is_runtime(std::string_view name) {
  return name.starts_with("libcudart.so");
}

}  // namespace

// Replaces the loader's dlopen() for all code of this program. It answers a request for any CUDA runtime with
// the program itself.
extern "C" void* dlopen(const char* name, int mode) noexcept {
  using Open = void*(const char*, int);
  static auto* const loader = reinterpret_cast<Open*>(dlsym(RTLD_NEXT, "dlopen"));
  if (name == nullptr) {
    return loader(nullptr, mode);
  }
  opened().emplace_back(name);
  return loader(is_runtime(name) ? nullptr : name, mode);
}

namespace vdnn::cuda {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::Not;
using ::testing::StartsWith;

TEST(OpenedLibraries, AskingForEnginesOpensNoRuntime) {
  const KnownGpu& gpu = known_gpus().front();
  const ConvolutionEngines engines(gpu.cudnn_properties);
  for (const Direction direction :
       {Direction::kForward, Direction::kBackwardData, Direction::kBackwardFilter}) {
    EngineQuestion question = plane_question(3, DataType::kF32);
    question.direction = direction;
    EXPECT_FALSE(engines.list(question).empty());
    EXPECT_FALSE(engines.operand_shapes(question).empty());
  }
  EXPECT_THAT(opened(), Contains(StartsWith("libcudnn.so"))) << "the interception works";
  EXPECT_THAT(opened(), Each(Not(StartsWith("libcudart.so"))));
}

// Graph::build() with a handle and modes also calls check_support(). Destroying a handle waits for the whole
// GPU (kept_handles.h).
TEST(OpenedLibraries, NoSourceCallsWhatLooksForARuntimeOrDestroysAHandle) {
  int sources = 0;
  for (const auto& entry : std::filesystem::directory_iterator(VDNN_CUDA_SOURCES)) {
    if (entry.is_regular_file()) {
      std::ifstream file(entry.path());
      const std::string text((std::istreambuf_iterator(file)), std::istreambuf_iterator<char>());
      EXPECT_EQ(text.find("check_support"), std::string::npos) << entry.path();
      EXPECT_EQ(text.find("Graph::build("), std::string::npos) << entry.path();
      for (const char* const destroys : {"destroy_handle(", "(cudnnDestroy)", "(cublasLtDestroy)"}) {
        EXPECT_EQ(text.find(destroys), std::string::npos) << entry.path() << ": " << destroys;
      }
      ++sources;
    }
  }
  EXPECT_GT(sources, 20);
}

}  // namespace
}  // namespace vdnn::cuda
