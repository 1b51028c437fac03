#include "src/ops/cuda/engine_choice.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tests/ops/cuda/choose_engine.h"

namespace vdnn::cuda::engine_choice_test {
namespace {

using enum NumericalNote;
using Position = std::optional<std::size_t>;

// Fastest first.
std::vector<Engine> engines() {
  return {{.name = "large", .workspace_bytes = 1000, .notes = {kTensorCore}},
          {.name = "loose", .workspace_bytes = 100, .notes = {kNondeterministic, kWinograd}},
          {.name = "halved", .workspace_bytes = 50, .notes = {kDownConvertInputs}},
          {.name = "strange", .workspace_bytes = 20, .notes = {kUnknown}},
          {.name = "plain", .workspace_bytes = 10, .notes = {kFft, kStrictNanPropagation}}};
}

Position choice(const EngineLimits& limits) {
  return choose_engine(engines(), limits);
}

TEST(EngineChoice, TheFirstThatFits) {
  EXPECT_EQ(choice({.workspace_bytes = 1000}), Position(0));
  EXPECT_EQ(choice({.workspace_bytes = 999}), Position(1));
  EXPECT_EQ(choice({.workspace_bytes = 100}), Position(1));
  EXPECT_EQ(choice({.workspace_bytes = 99}), Position(2));
  EXPECT_EQ(choice({.workspace_bytes = 10}), Position(4));
  EXPECT_EQ(choice({.workspace_bytes = 9}), std::nullopt);
  EXPECT_EQ(choose_engine({}, {.workspace_bytes = 1000}), std::nullopt);
}

TEST(EngineChoice, OnlyWhatGivesTheSameBits) {
  EXPECT_EQ(choice({.workspace_bytes = 999, .deterministic = true}), Position(2));
  EXPECT_EQ(choice({.workspace_bytes = 49, .deterministic = true}), Position(4));  // not of unknown behaviour
}

TEST(EngineChoice, OnlyWhatTakesInputsAsTheyAre) {
  EXPECT_EQ(choice({.workspace_bytes = 1000, .rounded_inputs = false}), Position(1));
  EXPECT_EQ(choice({.workspace_bytes = 1000, .deterministic = true, .rounded_inputs = false}), Position(4));
}

TEST(EngineChoice, Tf32IsPermittedWithoutAnythingSmaller) {
  EngineLimits limits{.workspace_bytes = 1000, .rounded_inputs = false, .tf32 = true};
  EXPECT_EQ(choice(limits), Position(0));
  limits.workspace_bytes = 99;  // enough for "halved", which is not permitted
  EXPECT_EQ(choice(limits), Position(4));
  EXPECT_EQ(choice(training_limits(ProductPrecision::kTf32)), Position(0));
  EXPECT_EQ(choice(training_limits(ProductPrecision::kFp32)), Position(4));
}

// If TF32 is the only permitted rounding, the TF32 engine is the choice. An engine that rounds further must
// not replace it.
TEST(EngineChoice, WhatTf32WouldChooseIsKept) {
  const std::vector<Engine> two{{.name = "halved", .workspace_bytes = 0, .notes = {kDownConvertInputs}},
                                {.name = "tf32", .workspace_bytes = 0, .notes = {kTensorCore}}};
  EXPECT_EQ(choosable(two), two);
}

// Narrow factors are multiplied without conversion and summed in fp32, if necessary by a later engine. Every
// engine sums fp32 factors in fp32.
TEST(EngineChoice, TrainingInNarrowTypesSumsInFp32) {
  const std::vector<Engine> two{
      {.name = "short sums", .workspace_bytes = 0, .notes = {kTensorCore, kReducedPrecisionReduction}},
      {.name = "fp32 sums", .workspace_bytes = 0, .notes = {kTensorCore}}};
  EXPECT_EQ(choosable(two), two);
  for (const ProductPrecision narrow : {ProductPrecision::kBf16, ProductPrecision::kFp16}) {
    EXPECT_EQ(choose_engine(two, training_limits(narrow)), Position(1));
  }
  EXPECT_EQ(choose_engine(two, training_limits(ProductPrecision::kTf32)), Position(0));
}

TEST(EngineChoice, WhatNoLimitsChooseIsNotKept) {
  EXPECT_EQ(choosable(engines()), engines());  // each needs less workspace than all earlier ones
  std::vector<Engine> more = engines();
  more.push_back({.name = "slower than plain", .workspace_bytes = 10, .notes = {kTensorCore}});
  more.push_back({.name = "smaller", .workspace_bytes = 9, .notes = {kUnknown}});
  more.push_back({.name = "as small, and exact", .workspace_bytes = 9, .notes = {}});
  const std::vector<Engine> kept = choosable(more);
  ASSERT_EQ(kept.size(), engines().size() + 2);
  EXPECT_EQ(kept[kept.size() - 2].name, "smaller");
  EXPECT_EQ(kept.back().name, "as small, and exact");
  EXPECT_TRUE(choosable({}).empty());
}

}  // namespace
}  // namespace vdnn::cuda::engine_choice_test
