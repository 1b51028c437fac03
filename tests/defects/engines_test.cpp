// Engines that were trusted (docs/known_defects.md): oneDNN's implementations are taken only where they have
// been held to our reference (tests/ops), and those that are known to be wrong are refused.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ops/layer_cases.h"
#include "vdnn/cpu_ops.h"
#include "vdnn/zoo.h"

namespace vdnn::testing {
namespace {

bool has_filter(const OpSpec& spec) {
  return std::holds_alternative<ConvolutionSpec>(spec) ||
         std::holds_alternative<TransposedConvolutionSpec>(spec) ||
         std::holds_alternative<FullyConnectedSpec>(spec);
}

const char* pass_of(Direction direction) {
  switch (direction) {
    case Direction::kForward:
      return "forward ";
    case Direction::kBackwardData:
      return "backward data ";
    case Direction::kBackwardFilter:
      return "backward filter ";
    case Direction::kUpdate:
      break;
  }
  return "update ";
}

// "forward jit:avx2", ...: everything that FilterLayerTest.EveryAlgorithmIsWithinTheErrorBound runs.
std::set<std::string> verified_engines(const OpCatalog& catalog) {
  std::set<std::string> names;
  for (const LayerCase& layer : filter_layer_cases()) {
    const LayerRecipe recipe =
        catalog.recipe(layer.spec, layer.inputs, std::array{layer.output}, Mode::kTraining);
    for (const std::vector<OpRecipe>* ops : {&recipe.forward, &recipe.backward}) {
      for (const OpRecipe& op : *ops) {
        for (const Algorithm& algorithm : op.algorithms) {
          names.insert(pass_of(op.direction) + algorithm.name);
        }
      }
    }
  }
  return names;
}

// cuDNN 9.8 to 9.10 computed bf16 convolutions in 3-D wrongly (pytorch#163539). Whatever oneDNN chooses, or
// offers, for any layer with filters of the zoo at its publication's size has been compared with a reference
// in double precision, in the same pass, on the machine that the tests run on.
TEST(KnownDefects, TrustedEngineThatNobodyComparedWithAReference) {
  const auto library = make_cpu_ops({});
  const std::set<std::string> verified = verified_engines(library->catalog());
  std::set<std::string> used;
  for (const std::string& model : model_names()) {
    const auto tape = lower_to_tape(make_model({.model = model, .batch = 2}), library->catalog(), {});
    for (const Op& op : tape->ops()) {
      if (has_filter(op.spec)) {
        for (const Algorithm& algorithm : op.algorithms) {
          const std::string name = pass_of(op.direction) + algorithm.name;
          used.insert(name);
          EXPECT_TRUE(verified.contains(name)) << model << ": " << op.name << " may take " << name;
        }
      }
    }
  }
  std::cout << used.size() << " implementations in the zoo, " << verified.size() << " verified\n";
  EXPECT_FALSE(used.empty());
}

// The list of refused engines on `cpu`. oneDNN 2.6's fast local response normalisation is wrong in its
// backward pass from windows of 7 channels up, and cannot be made for windows of 1: only 3 and 5 may take it.
TEST(KnownDefects, EnginesKnownToBeWrongStayRefused) {
  const auto library = make_cpu_ops({});
  for (const std::int64_t size : {1, 3, 5, 7, 9, 11}) {
    for (const std::int64_t channels : {16, 24, 32, 40}) {
      const LayerCase layer = same_shape_case("lrn", LrnSpec{.size = size}, {1, channels, 5, 7});
      const LayerRecipe recipe =
          library->catalog().recipe(layer.spec, layer.inputs, std::array{layer.output}, Mode::kTraining);
      for (const OpRecipe& op : {recipe.forward[0], recipe.backward[0]}) {
        ASSERT_EQ(op.algorithms.size(), 1U);
        const std::string& name = op.algorithms[0].name;
        if (size != 3 && size != 5) {
          EXPECT_NE(name.find("ref"), std::string::npos)
              << "size " << size << ", " << channels << " channels: " << name;
        }
      }
    }
  }
}

// What oneDNN calls its reference takes a thousand times as long: no layer with filters takes it where there
// is anything else.
TEST(KnownDefects, SlowReferenceIsNoChoiceForFilters) {
  const auto library = make_cpu_ops({});
  for (const std::string& name : verified_engines(library->catalog())) {
    EXPECT_EQ(name.find(" ref"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace vdnn::testing
