// Convolution engines as cuDNN itself lists them for GPUs that this machine need not have.

#include "src/ops/cuda/convolution_engines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/ops/cuda/gpu_shortage.h"
#include "src/ops/cuda/known_gpus.h"
#include "src/ops/cuda/recorded_engines.h"
#include "src/ops/cuda/vendor_library.h"
#include "streams/cuda/loaded_library.h"
#include "tests/extent.h"
#include "tests/ops/cuda/choose_engine.h"
#include "tests/ops/cuda/zoo_questions.h"

namespace vdnn::cuda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr std::array kDirections{Direction::kForward, Direction::kBackwardData, Direction::kBackwardFilter};
constexpr std::array kElements{DataType::kF32, DataType::kBf16, DataType::kF16};

std::string_view properties_of(std::string_view gpu) {
  return std::ranges::find(known_gpus(), gpu, &KnownGpu::name)->cudnn_properties;
}

ops::Convolution small_convolution() {
  return {.batch = 32,
          .input_channels = 64,
          .output_channels = 64,
          .input = {56, 56},
          .output = {56, 56},
          .kernel = {3, 3},
          .stride = {1, 1},
          .padding = {1, 1},
          .dilation = {}};
}

// Returns, in ascending order, each budget that permits one more engine, and each of these budgets less one
// byte.
std::vector<std::uint64_t> interesting_budgets(const std::vector<Engine>& engines) {
  std::set<std::uint64_t> budgets{0, std::numeric_limits<std::uint64_t>::max()};
  for (const Engine& engine : engines) {
    budgets.insert(engine.workspace_bytes);
    budgets.insert(engine.workspace_bytes - std::min<std::uint64_t>(engine.workspace_bytes, 1));
  }
  return {budgets.begin(), budgets.end()};
}

void expect_choices(const std::vector<Engine>& engines, bool deterministic, bool rounded_inputs) {
  std::optional<std::size_t> before;
  for (const std::uint64_t budget : interesting_budgets(engines)) {
    const EngineLimits limits{
        .workspace_bytes = budget, .deterministic = deterministic, .rounded_inputs = rounded_inputs};
    const std::optional<std::size_t> chosen = choose_engine(engines, limits);
    EXPECT_EQ(chosen, choose_engine(engines, limits));
    if (chosen) {
      const Engine& engine = engines.at(*chosen);
      EXPECT_LE(engine.workspace_bytes, budget);
      EXPECT_TRUE(engine.deterministic() || !deterministic) << engine.name;
      EXPECT_TRUE(!engine.rounds_inputs() || rounded_inputs) << engine.name;
    }
    if (before) {
      ASSERT_TRUE(chosen) << "the choice is lost with " << budget << " bytes";
      EXPECT_LE(*chosen, *before) << "a slower engine with " << budget << " bytes";
    }
    before = chosen;
  }
  // For each of these convolutions cuDNN has a deterministic engine that meets all other requirements.
  EXPECT_TRUE(before || !rounded_inputs) << "no engine with any budget";
}

// Under any limits the choice from the kept engines equals the choice from all engines.
void expect_same_choices(const std::vector<Engine>& engines, const std::vector<Engine>& kept) {
  const auto choice = [](const std::vector<Engine>& from, const EngineLimits& limits) {
    const std::optional<std::size_t> chosen = choose_engine(from, limits);
    return chosen ? std::optional(from.at(*chosen)) : std::nullopt;
  };
  for (const std::uint64_t budget : interesting_budgets(engines)) {
    for (const auto& [deterministic, rounded] :
         {std::pair(false, false), std::pair(false, true), std::pair(true, false), std::pair(true, true)}) {
      const EngineLimits limits{
          .workspace_bytes = budget, .deterministic = deterministic, .rounded_inputs = rounded};
      EXPECT_EQ(choice(kept, limits), choice(engines, limits));
    }
  }
}

void expect_sound(const ConvolutionEngines& device, const EngineQuestion& question) {
  SCOPED_TRACE(to_string(question));
  const std::vector<Engine> engines = device.list(question);
  EXPECT_EQ(engines, device.list(question));
  std::set<std::string> names;
  for (const Engine& engine : engines) {
    EXPECT_TRUE(names.insert(engine.name).second) << engine.name << " comes twice";
  }
  expect_choices(engines, false, true);
  expect_choices(engines, true, true);
  expect_choices(engines, true, false);
  expect_same_choices(engines, choosable(engines));
}

class EnginesOfDevice : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string name_ = GetParam();
  const ConvolutionEngines device_{properties_of(name_)};
};

TEST_P(EnginesOfDevice, ChoicesForTheZooKeepToTheBudgetAndAreTheSameTwice) {
  // The stride has no divisor in common with the number of directions and types, so that all of them have
  // their turn.
  const std::size_t stride = testing::extent({.usual = 19, .in_long_run = 1});
  const std::vector<EngineQuestion> questions = zoo_questions(16, kElements);
  std::size_t asked = 0;
  for (std::size_t i = 0; i < questions.size(); i += stride) {
    expect_sound(device_, questions[i]);
    ++asked;
  }
  std::cout << name_ << ": " << asked << " of " << questions.size() << " questions\n";
}

TEST_P(EnginesOfDevice, ThreeDimensionsGroupsAndDilation) {
  const ops::Convolution volume{.batch = 1,
                                .input_channels = 32,
                                .output_channels = 32,
                                .input = {128, 128, 128},
                                .output = {128, 128, 128},
                                .kernel = {3, 3, 3},
                                .stride = {1, 1, 1},
                                .padding = {1, 1, 1},
                                .dilation = {}};
  ops::Convolution grouped = small_convolution();
  grouped.groups = 8;
  ops::Convolution dilated = small_convolution();
  dilated.dilation = {2, 2};
  dilated.padding = {2, 2};
  for (const ops::Convolution& convolution : {volume, grouped, dilated}) {
    for (const Direction direction : kDirections) {
      expect_sound(device_, {convolution, direction, DataType::kBf16});
    }
  }
}

// The convolution of pytorch#95024 has more than 2^31 elements. The engine that cuDNN lists first for it
// needs a workspace many times as large as the operands.
TEST_P(EnginesOfDevice, WantNoMoreThanTheOperandsTakeAbove2To31Elements) {
  ops::Convolution volume = small_convolution();
  volume.batch = 1;
  volume.output_channels = 32;
  volume.input = volume.output = {362, 370, 251};
  volume.kernel = {3, 3, 3};
  volume.stride = volume.padding = {1, 1, 1};
  const std::uint64_t operands =
      2 * (std::uint64_t{96} * element_count(volume.input) + std::uint64_t{32} * 64 * 27);
  for (const Direction direction : kDirections) {
    try {
      for (const Engine& engine : device_.list({volume, direction, DataType::kF16})) {
        EXPECT_LE(engine.workspace_bytes, operands) << engine.name;
      }
    } catch (const NoEngine& error) {
      EXPECT_THAT(error.what(), HasSubstr("pytorch#95024"));
    }
  }
}

TEST_P(EnginesOfDevice, IntegersAreRefusedWithTheReasonOfCudnn) {
  for (const auto& integers : {std::pair(DataType::kI32, "int32"), std::pair(DataType::kU8, "uint8")}) {
    for (const Direction direction : kDirections) {
      EXPECT_THAT(
          [&] {
            device_.list({small_convolution(), direction, integers.first});
          },
          ThrowsMessage<NoEngine>(AllOf(HasSubstr(std::string(integers.second) + " convolution"),
                                        HasSubstr("batch 32, 64x56x56 to 64x56x56"),
                                        HasSubstr("CUDNN_STATUS_NOT_SUPPORTED"))));
    }
  }
}

TEST_P(EnginesOfDevice, AreThoseThatAreRecorded) {
  const RecordedEngines recorded(std::ranges::find(known_gpus(), name_, &KnownGpu::name)->recorded_engines);
  if (recorded.name() != device_.name() + ", recorded") {
    GTEST_SKIP() << "recorded with another version: " << recorded.name() << ", not " << device_.name();
  }
  const std::size_t stride =
      testing::extent({.usual = 10, .in_long_run = 1});  // every direction has its turn
  const std::vector<EngineQuestion> questions = recorded_questions();
  for (std::size_t i = 0; i < questions.size(); i += stride) {
    EXPECT_EQ(recorded.list(questions[i]), choosable(device_.list(questions[i]))) << to_string(questions[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, EnginesOfDevice,
                         ::testing::Values("a100", "rtx4090", "h100", "h200", "b200"),
                         [](const auto& device) { return std::string(device.param); });

// By default cuDNN loads its compiler anew for each question.
TEST(ConvolutionEngines, TheCompilerStaysOpenBetweenQuestions) {
  ConvolutionEngines(properties_of("a100")).list({small_convolution(), Direction::kForward, DataType::kF32});
  std::ifstream maps("/proc/self/maps");
  const std::string mapped{std::istreambuf_iterator<char>(maps), {}};
  EXPECT_THAT(mapped, HasSubstr("libnvrtc.so"));
}

TEST(ConvolutionEngines, AreThoseOfTheDevice) {
  const auto list = [](const char* gpu) {
    return ConvolutionEngines(properties_of(gpu))
        .list({small_convolution(), Direction::kForward, DataType::kF32});
  };
  EXPECT_NE(list("a100"), list("h200"));
  EXPECT_NE(list("h200"), list("b200"));
}

TEST(ConvolutionEngines, AreThoseOfTheBatch) {
  const ConvolutionEngines device(properties_of("h200"));
  const auto largest = [&](std::int64_t batch) {
    ops::Convolution convolution = small_convolution();
    convolution.batch = batch;
    std::uint64_t bytes = 0;
    for (const Engine& engine : device.list({convolution, Direction::kForward, DataType::kF32})) {
      bytes = std::max(bytes, engine.workspace_bytes);
    }
    return bytes;
  };
  EXPECT_GT(largest(512), largest(32));
}

// Regression: tensors were numbered while function arguments were evaluated, in an order that the compiler
// chooses. cuDNN took the filters for the feature map and the feature map for the filters.
TEST(ConvolutionEngines, OperandsAreInTheOrderOfVendorOps) {
  const ConvolutionEngines device(properties_of("h200"));
  ops::Convolution convolution = small_convolution();
  convolution.output_channels = 128;
  convolution.output = {28, 28};
  convolution.stride = {2, 2};
  const Dims x{32, 64, 56, 56};
  const Dims filter{128, 64, 3, 3};
  const Dims y{32, 128, 28, 28};
  const auto shapes = [&](Direction direction) {
    return device.operand_shapes({convolution, direction, DataType::kF32});
  };
  EXPECT_THAT(shapes(Direction::kForward), ElementsAre(x, filter, y));
  EXPECT_THAT(shapes(Direction::kBackwardData), ElementsAre(y, filter, x));
  EXPECT_THAT(shapes(Direction::kBackwardFilter), ElementsAre(x, y, filter));
}

TEST(ConvolutionEngines, WhatCannotBeAskedIsRefused) {
  const ConvolutionEngines device(properties_of("h200"));
  const auto list = [&](const ops::Convolution& convolution, Direction direction) {
    return device.list({convolution, direction, DataType::kF32});
  };
  EXPECT_THROW(list(small_convolution(), Direction::kUpdate), InvalidArgument);
  ops::Convolution empty = small_convolution();
  empty.batch = 0;
  EXPECT_THROW(list(empty, Direction::kForward), NoEngine);
  ops::Convolution odd = small_convolution();
  odd.output = {55, 55};
  for (const Direction direction : kDirections) {
    EXPECT_THROW(list(odd, direction), NoEngine);
  }
}

TEST(ConvolutionEngines, PropertiesThatAreNoneAreRefused) {
  EXPECT_THAT([] { ConvolutionEngines("{}"); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("device properties"), HasSubstr("HasMember"))));
  EXPECT_THAT([] { ConvolutionEngines("no JSON"); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("device properties"), HasSubstr("IsObject"))));
}

TEST(ConvolutionEngines, TheVersionIsThatOfTheLibrary) {
  EXPECT_THAT(cudnn_version(), MatchesRegex("9\\.[0-9]+\\.[0-9]+"));
  EXPECT_EQ(ConvolutionEngines(properties_of("h200")).name(), "cudnn " + cudnn_version());
}

// Uses copies of cuDNN's messages, since real messages would need a GPU whose memory is full. Regression: a
// shortage was reported as a DeviceError.
TEST(ConvolutionEngines, WantOfTheGpusMemoryIsToldFromOtherFailures) {
  const std::string version = cudnn_version();
  const LoadedLibrary cudnn("libcudnn.so." + version.substr(0, version.find('.')));
  const auto name = cudnn.find<const char* (*)(int)>("cudnnGetErrorString");
  constexpr int kDeviceAllocationFailed = 4004;
  for (int status = 0; status < 7000; ++status) {
    const std::string text = name(status);
    EXPECT_EQ(tells_of_gpu_shortage("execute failed with message: , and code: " + text),
              status == kDeviceAllocationFailed)
        << status << " " << text;
  }
}

// The library finds all functions in cuDNN and cuBLASLt by name; then the first call fails.
TEST(VendorLibrary, SaysWhatFailedWhereThereIsNoGpu) {
  for (const bool library : {true, false}) {
    try {
      if (library) {
        make_vendor_library(0);
      } else {
        engines_of_this_gpu(0);
      }
      GTEST_SKIP() << "there is a GPU";
    } catch (const DeviceError& error) {
      EXPECT_THAT(error.what(), MatchesRegex("cudnnCreate: CUDNN_STATUS_[A-Z_]+"));
    }
  }
}

}  // namespace
}  // namespace vdnn::cuda
