// Defects of engines that were trusted untested (docs/known_defects.md). An implementation of oneDNN is used
// only where it has been compared with our reference (tests/ops). Implementations known to be wrong are
// refused.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tests/ops/filter_layer_check.h"
#include "tests/ops/layer_cases.h"
#include "vdnn/cpu_ops.h"
#include "vdnn/zoo.h"

namespace vdnn::testing::engines_test {
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

// The algorithms of a layer in any of its passes, for example "forward jit:avx2".
std::set<std::string> engines_of(const LayerRecipe& recipe) {
  std::set<std::string> names;
  for (const std::vector<OpRecipe>* ops : {&recipe.forward, &recipe.backward}) {
    for (const OpRecipe& op : *ops) {
      for (const Algorithm& algorithm : op.algorithms) {
        names.insert(pass_of(op.direction) + algorithm.name);
      }
    }
  }
  return names;
}

// All engines that FilterLayerTest.EveryAlgorithmIsWithinTheErrorBound runs.
std::set<std::string> verified_engines(const OpCatalog& catalog) {
  std::set<std::string> names;
  for (const LayerCase& layer : filter_layer_cases()) {
    names.merge(
        engines_of(catalog.recipe(layer.spec, layer.inputs, std::array{layer.output}, Mode::kTraining)));
  }
  return names;
}

bool fits(const Dims& input, const ConvolutionSpec& spec) {
  for (std::size_t axis = 0; axis < spec.kernel.size(); ++axis) {
    const std::int64_t dilation = spec.dilation.empty() ? 1 : spec.dilation[axis];
    if (input[axis + 2] + 2 * spec.padding[axis] < (spec.kernel[axis] - 1) * dilation + 1) {
      return false;
    }
  }
  return true;
}

// The layer of `op` for one sample of at most `space` elements in each spatial dimension; empty if the window
// does not fit.
std::optional<LayerCase> smaller(const Op& op, std::int64_t space) {
  Dims input = op.layer_inputs[0].dims;
  input[0] = 1;
  for (std::size_t axis = 2; axis < input.size(); ++axis) {
    input[axis] = std::min(input[axis], space);
  }
  if (const auto* connected = std::get_if<FullyConnectedSpec>(&op.spec)) {
    return fully_connected_case(op.name, input, *connected);
  }
  if (const auto* transposed = std::get_if<TransposedConvolutionSpec>(&op.spec)) {
    return transposed_convolution_case(op.name, input, *transposed);
  }
  const auto& convolution = std::get<ConvolutionSpec>(op.spec);
  return fits(input, convolution) ? std::optional(convolution_case(op.name, input, convolution))
                                  : std::nullopt;
}

// Layers with at most this many products are small enough: the reference in double precision takes a second
// or two.
constexpr double kMostProducts = 5e6;

// A small version of a layer among those of `ops` that may use `engine`.
std::optional<LayerCase> small_layer_with(const OpCatalog& catalog, const std::string& engine,
                                          const std::vector<const Op*>& ops) {
  for (const std::int64_t space : {3, 5, 7, 14, 28}) {
    for (const Op* op : ops) {
      std::optional<LayerCase> layer = smaller(*op, space);
      if (!layer) {
        continue;
      }
      const LayerRecipe recipe =
          catalog.recipe(layer->spec, layer->inputs, std::array{layer->output}, Mode::kTraining);
      if (recipe.forward[0].cost.flops / 2 <= kMostProducts && engines_of(recipe).contains(engine)) {
        return layer;
      }
    }
  }
  return std::nullopt;
}

// cuDNN 9.8 to 9.10 computed bf16 convolutions in 3-D wrongly (pytorch#163539). This test covers every
// implementation that oneDNN offers for a zoo layer with filters at its published size. Each implementation
// has been compared, in the same pass and on the machine of the tests, with a reference in double precision.
// The cases of tests/ops compare most implementations; this test compares the others that oneDNN offers on
// this processor.
class TrustedEngines : public ::testing::Test {
 protected:
  TrustedEngines() {
    for (const std::string& model : model_names()) {
      tapes_.push_back(lower_to_tape(make_model({.model = model, .batch = 2}), library_->catalog(), {}));
      for (const Op& op : tapes_.back()->ops()) {
        if (has_filter(op.spec)) {
          for (const Algorithm& algorithm : op.algorithms) {
            used_[pass_of(op.direction) + algorithm.name].push_back(&op);
          }
        }
      }
    }
  }

  // Compares the engines with the reference on small versions of zoo layers. Returns the engines for which
  // there is no small version.
  std::set<std::string> not_comparable(const std::set<std::string>& engines) {
    std::set<std::string> left;
    for (const std::string& engine : engines) {
      if (const auto layer = small_layer_with(library_->catalog(), engine, used_.at(engine))) {
        SCOPED_TRACE(engine + " on a smaller " + layer->name);
        expect_filter_layer_within_bounds(*library_, *layer);
      } else {
        left.insert(engine);
      }
    }
    return left;
  }

  const std::unique_ptr<OpLibrary> library_ = make_cpu_ops({});
  const std::set<std::string> verified_ = verified_engines(library_->catalog());
  std::vector<std::shared_ptr<const Tape>> tapes_;
  std::map<std::string, std::vector<const Op*>> used_;
};

TEST_F(TrustedEngines, AreComparedWithAReferenceBeforeAnybodyTrustsThem) {
  std::set<std::string> others;
  for (const auto& [engine, ops] : used_) {
    if (!verified_.contains(engine)) {
      others.insert(engine);
    }
  }
  std::cout << used_.size() << " implementations in the zoo, " << others.size()
            << " of them not in tests/ops\n";
  EXPECT_FALSE(used_.empty());
  std::string skipped;
  for (const std::string& engine : not_comparable(others)) {
    skipped += " '" + engine + "'";
  }
  if (!skipped.empty()) {
    GTEST_SKIP() << "this processor has implementations that no small layer can use:" << skipped;
  }
}

// On processors where tests/ops compares everything, this test ensures that small layers are found.
TEST_F(TrustedEngines, AreFoundOnSmallerLayers) {
  std::set<std::string> some;
  for (const char* pass : {"forward ", "backward data ", "backward filter "}) {
    const auto first =
        std::ranges::find_if(used_, [&](const auto& use) { return use.first.starts_with(pass); });
    ASSERT_NE(first, used_.end()) << pass;
    some.insert(first->first);
  }
  EXPECT_EQ(not_comparable(some), std::set<std::string>());
}

// The list of refused engines on `cpu`. oneDNN 2.6's fast local response normalisation has a wrong backward
// pass for windows of 7 or more channels. For windows of 1, its creation fails. So only windows of 3 and 5
// may use it.
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

// oneDNN's reference kernels are a thousand times slower, so a layer with filters uses one only if it has no
// other kernel.
TEST(KnownDefects, SlowReferenceIsNoChoiceForFilters) {
  const auto library = make_cpu_ops({});
  for (const std::string& name : verified_engines(library->catalog())) {
    EXPECT_EQ(name.find(" ref"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace vdnn::testing::engines_test
