#include "src/ops/cuda/cuda_catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "src/ops/cuda/engine_algorithms.h"
#include "src/ops/product_names.h"
#include "tests/ops/cuda/listed_engines.h"
#include "vdnn/classic_catalog.h"

namespace vdnn::cuda::cuda_catalog_test {
namespace {

using enum NumericalNote;
using ::testing::ElementsAre;

// Engine names contain the direction.
class Source final : public EngineSource {
 public:
  explicit Source(std::size_t* asked) : asked_(asked) {}
  std::vector<Engine> do_list(const EngineQuestion& question) const override {
    ++*asked_;
    if (question.convolution.groups > 1) {
      throw NoEngine(question, "no groups here");
    }
    const std::string pass = std::to_string(static_cast<int>(question.direction));
    if (question.convolution.input_channels == 5) {
      return {{.name = "tf32 alone", .notes = {kTensorCore}}};
    }
    return {{.name = "tf32 " + pass, .workspace_bytes = 50, .notes = {kTensorCore}},
            {.name = "atomics " + pass, .workspace_bytes = 40, .notes = {kNondeterministic}},
            {.name = "large " + pass, .workspace_bytes = 30, .notes = {kFft}},
            {.name = "as large " + pass, .workspace_bytes = 30},
            {.name = "small " + pass, .workspace_bytes = 0}};
  }
  std::string name() const override { return "library 1.2"; }

 private:
  std::size_t* asked_;
};

class CudaCatalogConvolutions : public ::testing::Test {
 protected:
  LayerRecipe recipe(const OpSpec& spec, const TensorType& x, const TensorType& y,
                     Mode mode = Mode::kTraining) {
    return catalog_->recipe(spec, std::array{x}, std::array{y}, mode);
  }

  std::size_t asked_ = 0;
  const std::unique_ptr<OpCatalog> catalog_ =
      std::make_unique<CudaCatalog>(std::make_shared<Source>(&asked_));
  const TensorType x_{.dims = {2, 3, 16, 16}};
  const TensorType y_{.dims = {2, 8, 16, 16}};
  const ConvolutionSpec convolution_{.filters = 8, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}};
};

std::vector<std::string> names(const OpRecipe& op) {
  std::vector<std::string> found;
  for (const Algorithm& algorithm : op.algorithms) {
    found.push_back(algorithm.name);
  }
  return found;
}

TEST_F(CudaCatalogConvolutions, OffersWhatKeepsFp32AndBitsAndIsAChoice) {
  const LayerRecipe made = recipe(convolution_, x_, y_);
  EXPECT_THAT(names(made.forward.at(0)), ElementsAre("large 0", "small 0"));
  EXPECT_EQ(made.forward[0].algorithms[0].workspace_bytes, 30U);
  EXPECT_EQ(made.forward[0].algorithms[1].workspace_bytes, 0U);
  ASSERT_EQ(made.backward.size(), 2U);
  EXPECT_THAT(names(made.backward[0]), ElementsAre("large 2", "small 2"));
  EXPECT_THAT(names(made.backward[1]), ElementsAre("large 1", "small 1"));
  EXPECT_EQ(catalog_->algorithms_source(), "library 1.2");
}

// The engines of this source have no measured times: each costs 5 % more than the previous one.
TEST_F(CudaCatalogConvolutions, CostMoreTheLaterTheyAreListed) {
  const LayerRecipe made = recipe(convolution_, x_, y_);
  for (const OpRecipe& op : {made.forward.at(0), made.backward.at(0), made.backward.at(1)}) {
    ASSERT_EQ(op.algorithms.size(), 2U);
    EXPECT_EQ(op.algorithms[0].cost.value().flops, op.cost.flops);
    EXPECT_EQ(op.algorithms[0].cost.value().bytes, op.cost.bytes);
    EXPECT_EQ(op.algorithms[0].cost.value().seconds, 0);
    EXPECT_DOUBLE_EQ(op.algorithms[1].cost.value().flops, 1.05 * op.cost.flops);
    EXPECT_DOUBLE_EQ(op.algorithms[1].cost.value().bytes, 1.05 * op.cost.bytes);
    EXPECT_EQ(op.algorithms[1].cost.value().arithmetic, Arithmetic::kConvolution);
  }
}

// Measured times override the assumed costs. An engine whose trial found no memory comes after the timed
// engines.
TEST(CudaCatalogCosts, AreMeasuredTimesWhereThereAreAny) {
  const auto timed = std::make_shared<ListedEngines>(
      "timed", std::vector<Engine>{{.name = "fast", .workspace_bytes = 30, .seconds = 0.002},
                                   {.name = "slow", .workspace_bytes = 20, .seconds = 0.008},
                                   {.name = "not timed", .workspace_bytes = 10}});
  const TensorType type{.dims = {2, 8, 16, 16}};
  const OpSpec spec = ConvolutionSpec{.filters = 8, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}};
  const LayerRecipe made =
      CudaCatalog(timed).recipe(spec, std::array{type}, std::array{type}, Mode::kInference);
  const std::vector<Algorithm>& algorithms = made.forward.at(0).algorithms;
  ASSERT_EQ(algorithms.size(), 3U);
  EXPECT_EQ(algorithms[0].cost.value().seconds, 0.002);
  EXPECT_EQ(algorithms[1].cost.value().seconds, 0.008);
  EXPECT_DOUBLE_EQ(algorithms[2].cost.value().seconds, 1.05 * 0.008);
}

OpRecipe forward_with(std::vector<Engine> engines) {
  const TensorType type{.dims = {2, 8, 16, 16}};
  const OpSpec spec = ConvolutionSpec{.filters = 8, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}};
  const CudaCatalog catalog(std::make_shared<ListedEngines>("listed", std::move(engines)));
  return catalog.recipe(spec, std::array{type}, std::array{type}, Mode::kInference).forward.at(0);
}

// Regression: the assumed cost of a fallback was 5 % above that of the engine listed before it. So plans
// preferred the fallback to any engine with a workspace.
TEST(CudaCatalogCosts, AGenericFallbackThatNobodyTimedCostsFiveTimesTheFirstChoice) {
  const OpRecipe op = forward_with({{.name = "eng1_k2=2_k3=0", .workspace_bytes = 30},
                                    {.name = "eng2_k2=2_k3=0", .workspace_bytes = 20},
                                    {.name = "eng0", .notes = {kStrictNanPropagation}}});
  ASSERT_EQ(op.algorithms.size(), 3U);
  EXPECT_DOUBLE_EQ(op.algorithms[1].cost.value().flops, 1.05 * op.cost.flops);
  EXPECT_DOUBLE_EQ(op.algorithms[2].cost.value().flops, 5 * op.cost.flops);
  EXPECT_DOUBLE_EQ(op.algorithms[2].cost.value().bytes, 5 * op.cost.bytes);
}

TEST(CudaCatalogCosts, AGenericFallbackThatFollowsTimedEnginesIsSlowerThanAllOfThem) {
  const auto fallback_seconds = [](double slowest) {
    return forward_with({{.name = "eng1", .workspace_bytes = 30, .seconds = 0.002},
                         {.name = "eng2", .workspace_bytes = 20, .seconds = slowest},
                         {.name = "eng0"}})
        .algorithms.at(2)
        .cost.value()
        .seconds;
  };
  EXPECT_DOUBLE_EQ(fallback_seconds(0.004), 0.01);
  EXPECT_DOUBLE_EQ(fallback_seconds(0.02), 0.021);
}

TEST(CudaCatalogCosts, AGenericEngineThatIsTimedOrListedFirstIsNoFallback) {
  const OpRecipe timed = forward_with(
      {{.name = "eng1", .workspace_bytes = 30, .seconds = 0.002}, {.name = "eng0", .seconds = 0.003}});
  EXPECT_EQ(timed.algorithms.at(1).cost.value().seconds, 0.003);
  const OpRecipe first = forward_with({{.name = "eng0"}, {.name = "eng1", .workspace_bytes = 30}});
  EXPECT_EQ(first.algorithms.at(0).cost.value().flops, first.cost.flops);
}

TEST(CudaCatalogCosts, OtherEnginesWithoutWorkspaceAreNoFallbacks) {
  const OpRecipe op =
      forward_with({{.name = "eng12_k5=1", .workspace_bytes = 30}, {.name = "eng28_k2=3_k3=0"}});
  EXPECT_DOUBLE_EQ(op.algorithms.at(1).cost.value().flops, 1.05 * op.cost.flops);
}

// An engine that rounds to TF32 is an algorithm of its own, with a name of its own.
TEST_F(CudaCatalogConvolutions, OffersTf32UnderANameOfItsOwnWhereItIsPermitted) {
  std::size_t asked = 0;
  const CudaCatalog catalog(std::make_shared<Source>(&asked), {.convolutions = ProductPrecision::kTf32,
                                                               .matrix_products = ProductPrecision::kTf32});
  const auto forward = [&](const TensorType& x) {
    return catalog.recipe(convolution_, std::array{x}, std::array{y_}, Mode::kInference).forward.at(0);
  };
  EXPECT_THAT(names(forward(x_)), ElementsAre("tf32 0 in tf32", "large 0", "small 0"));
  EXPECT_EQ(forward(x_).algorithms[0].cost.value().precision, ProductPrecision::kTf32);
  EXPECT_EQ(forward(x_).algorithms[1].cost.value().precision, ProductPrecision::kFp32);
  EXPECT_THAT(names(forward({.dims = {2, 5, 16, 16}})), ElementsAre("tf32 alone in tf32"));
  EXPECT_EQ(catalog.algorithms_source(), "library 1.2, tf32");
  EXPECT_TRUE(ops::is_in_tf32("eng1 in tf32"));
  EXPECT_FALSE(ops::is_in_tf32("eng1"));
  EXPECT_EQ(ops::without_precision(ops::in_tf32("eng1")), "eng1");
  EXPECT_EQ(ops::without_precision("eng1"), "eng1");
}

// PyTorch has the same setting.
TEST_F(CudaCatalogConvolutions, MatrixProductsKeepFp32WhereConvolutionsAloneMayRound) {
  std::size_t asked = 0;
  const CudaCatalog catalog(std::make_shared<Source>(&asked), {.convolutions = ProductPrecision::kTf32});
  const auto algorithms = [&](const OpSpec& spec, const TensorType& x, const TensorType& y) {
    return catalog.recipe(spec, std::array{x}, std::array{y}, Mode::kInference).forward.at(0).algorithms;
  };
  EXPECT_EQ(algorithms(convolution_, x_, y_).at(0).name, "tf32 0 in tf32");
  const std::vector<Algorithm> products =
      algorithms(FullyConnectedSpec{.outputs = 4}, {.dims = {2, 8}}, {.dims = {2, 4}});
  EXPECT_EQ(products.at(0).name, "cublaslt");
  EXPECT_EQ(products[0].cost.value().precision, ProductPrecision::kFp32);
  EXPECT_EQ(catalog.algorithms_source(), "library 1.2, tf32 convolutions");
}

TEST(RecordedPrecisions, AreWhatTheNamesOfAlgorithmsSay) {
  using enum ProductPrecision;
  EXPECT_EQ(ops::recorded_precisions({{"conv1.forward", "eng1"}, {"fc1.forward", "cublaslt"}}),
            ProductPrecisions());
  EXPECT_EQ(ops::recorded_precisions({{"conv1.forward", "eng1 in tf32"}, {"fc1.forward", "cublaslt"}}),
            (ProductPrecisions{.convolutions = kTf32}));
  EXPECT_EQ(ops::recorded_precisions({{"conv1.forward", "eng1"}, {"fc1.forward", "cublaslt in tf32"}}),
            (ProductPrecisions{.convolutions = kTf32, .matrix_products = kTf32}));
}

TEST_F(CudaCatalogConvolutions, ATransposedConvolutionGoesForwardAsADataGradient) {
  const TransposedConvolutionSpec transposed{
      .filters = 3, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}};
  const LayerRecipe made = recipe(transposed, y_, x_);
  EXPECT_THAT(names(made.forward.at(0)), ElementsAre("large 1", "small 1"));
  ASSERT_EQ(made.backward.size(), 2U);
  EXPECT_THAT(names(made.backward[0]), ElementsAre("large 2", "small 2"));
  EXPECT_THAT(names(made.backward[1]), ElementsAre("large 0", "small 0"));
}

TEST_F(CudaCatalogConvolutions, AsksEachQuestionOnceAndInInferenceForwardAlone) {
  recipe(convolution_, x_, y_, Mode::kInference);
  EXPECT_EQ(asked_, 1U);
  recipe(convolution_, x_, y_);
  EXPECT_EQ(asked_, 3U);
  recipe(convolution_, x_, y_);
  EXPECT_EQ(asked_, 3U);
}

TEST_F(CudaCatalogConvolutions, SaysWhereThereIsNoEngine) {
  ConvolutionSpec grouped = convolution_;
  grouped.groups = 2;
  const TensorType four{.dims = {2, 4, 16, 16}};
  EXPECT_THROW(recipe(grouped, four, y_), NoEngine);
  const TensorType five{.dims = {2, 5, 16, 16}};
  EXPECT_THROW(recipe(convolution_, five, y_), NoEngine);
}

TEST_F(CudaCatalogConvolutions, HasTheOperandsOfTheClassicOne) {
  const LayerRecipe ours = recipe(convolution_, x_, y_);
  const LayerRecipe classic =
      make_classic_catalog()->recipe(convolution_, std::array{x_}, std::array{y_}, Mode::kTraining);
  ASSERT_EQ(ours.backward.size(), classic.backward.size());
  for (std::size_t i = 0; i < ours.backward.size(); ++i) {
    EXPECT_EQ(ours.backward[i].reads, classic.backward[i].reads);
    EXPECT_EQ(ours.backward[i].writes, classic.backward[i].writes);
    EXPECT_EQ(ours.backward[i].cost.flops, classic.backward[i].cost.flops);
  }
  EXPECT_EQ(ours.parameters.size(), classic.parameters.size());
}

}  // namespace
}  // namespace vdnn::cuda::cuda_catalog_test
