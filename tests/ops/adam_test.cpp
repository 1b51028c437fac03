#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/ops/layer_cases.h"
#include "tests/ops/reference_optimizers.h"
#include "tests/ops/tested_library.h"
#include "vdnn/error.h"

namespace vdnn::testing::adam_test {
namespace {

using reference::Array;

constexpr Operand kState1{OperandRole::kState, 1};
constexpr Operand kNorm{OperandRole::kGradientNorm, 0};

ParameterRecipe vector_of(std::int64_t elements) {
  return {.name = "bias",
          .type = {.dims = {elements}},
          .storage_bytes = static_cast<std::uint64_t>(elements) * sizeof(float)};
}

reference::AdamState random_state(std::int64_t elements, std::uint32_t seed) {
  reference::AdamState state{.parameter = random_array({elements}, seed),
                             .first_moment = random_array({elements}, seed + 1),
                             .second_moment = random_array({elements}, seed + 2)};
  for (double& value : state.second_moment.data) {
    value = std::abs(value);
  }
  return state;
}

void set_state(OpHarness& op, const reference::AdamState& state) {
  op.set(kFilter, state.parameter);
  op.set(kState, state.first_moment);
  op.set(kState1, state.second_moment);
}

void expect_within(const Array& got, const reference::Bounded& want, const char* what) {
  for (std::size_t i = 0; i < got.data.size(); ++i) {
    ASSERT_TRUE(std::abs(got.data[i] - want.value.data[i]) <= want.bound[i])
        << what << ", element " << i << ": got " << got.data[i] << ", want " << want.value.data[i]
        << " within " << want.bound[i];
  }
}

reference::AdamOptions options_of(const AdamSpec& spec, const StepScalars& scalars, double scale) {
  return {.beta1 = static_cast<double>(spec.beta1),
          .beta2 = static_cast<double>(spec.beta2),
          .epsilon = static_cast<double>(spec.epsilon),
          .weight_decay = static_cast<double>(spec.weight_decay),
          .decoupled = spec.decoupled,
          .learning_rate = static_cast<double>(scalars.learning_rate),
          .step = static_cast<double>(scalars.step),
          .scale = scale};
}

class AdamTest : public ::testing::TestWithParam<TestedLibrary> {
 protected:
  std::unique_ptr<OpLibrary> library_ = GetParam().make();
};

TEST_P(AdamTest, StepsAreWithinTheErrorBound) {
  for (const AdamSpec& spec :
       {AdamSpec{}, AdamSpec{.weight_decay = 0.01F}, AdamSpec{.weight_decay = 0.01F, .decoupled = true},
        AdamSpec{.beta1 = 0.5F, .beta2 = 0.75F, .epsilon = 0.1F, .weight_decay = 0.3F}}) {
    for (const bool clipped : {false, true}) {
      for (const std::uint64_t step : {0U, 1U, 1000U, 4'000'000'000U}) {
        constexpr std::int64_t kElements = 20'011;
        OpHarness op(*library_, spec, vector_of(kElements), clipped);
        const reference::AdamState state = random_state(kElements, 181);
        const Array gradient = random_array({kElements}, 184);
        set_state(op, state);
        op.set(kDFilter, gradient);
        const float scale = clipped ? 0.7F : 1.0F;
        if (clipped) {
          op.buffer(kNorm).as<float>()[0] = 123;
          op.buffer(kNorm).as<float>()[1] = scale;
        }
        const StepScalars scalars{.learning_rate = 0.002F, .step = step};
        op.run(0, {.in_place = {}, .scalars = scalars});
        const reference::AdamStep want =
            reference::adam(state, gradient, options_of(spec, scalars, static_cast<double>(scale)));
        expect_within(op.get(kFilter), want.parameter, "parameter");
        expect_within(op.get(kState), want.first_moment, "first moment");
        expect_within(op.get(kState1), want.second_moment, "second moment");
        expect_equal(op.get(kDFilter), gradient);
      }
    }
  }
}

// The purpose of bias correction (Kingma and Ba, section 3). If the moments start at zero, the size of the
// first step is the learning rate, whatever the gradient's size.
TEST_P(AdamTest, TheFirstStepIsTheLearningRate) {
  OpHarness op(*library_, AdamSpec{}, vector_of(4));
  op.set(kFilter, Array({4}));
  op.set(kState, Array({4}));
  op.set(kState1, Array({4}));
  Array gradient({4});
  gradient.data = {1000, -2, 0.0625, -0.001953125};
  op.set(kDFilter, gradient);
  op.run(0, {.in_place = {}, .scalars = {.learning_rate = 0.5F}});
  const Array moved = op.get(kFilter);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(moved.data[i], gradient.data[i] > 0 ? -0.5 : 0.5, 1e-5);
  }
}

// AdamW's decay does not pass through the moments.
TEST_P(AdamTest, DecoupledDecayShrinksParametersWithoutAGradient) {
  OpHarness op(*library_, AdamSpec{.weight_decay = 0.5F, .decoupled = true}, vector_of(3));
  Array parameter({3});
  parameter.data = {4, -8, 0};
  op.set(kFilter, parameter);
  for (const Operand& zero : {kDFilter, kState, kState1}) {
    op.set(zero, Array({3}));
  }
  op.run(0, {.in_place = {}, .scalars = {.learning_rate = 0.25F, .step = 3}});
  EXPECT_EQ(op.get(kFilter).data, (std::vector<double>{3.5, -7, 0}));
  EXPECT_EQ(op.get(kState).data, (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(op.get(kState1).data, (std::vector<double>{0, 0, 0}));
}

// Convolutions also read the padding of a stored filter.
TEST_P(AdamTest, PaddingStaysZero) {
  for (const bool decoupled : {false, true}) {
    ParameterRecipe padded = vector_of(10);
    padded.storage_bytes = 64;
    OpHarness op(*library_, AdamSpec{.weight_decay = 0.1F, .decoupled = decoupled}, padded);
    for (const Operand& operand : {kFilter, kDFilter, kState, kState1}) {
      const auto stored = op.buffer(operand).as<float>();
      ASSERT_EQ(stored.size(), 16U);
      std::ranges::fill(stored, 0.0F);
      std::ranges::fill(stored.first(10), 0.5F);
    }
    for (const std::uint64_t step : {0U, 1U}) {
      op.run(0, {.in_place = {}, .scalars = {.learning_rate = 0.1F, .step = step}});
      for (const Operand& operand : {kFilter, kState, kState1}) {
        for (const float value : op.buffer(operand).as<float>().subspan(10)) {
          EXPECT_EQ(value, 0.0F);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Libraries, AdamTest, ::testing::ValuesIn(tested_libraries({1, 2})),
                         [](const auto& test) { return test.param.name(); });

TEST_P(AdamTest, RecipeUpdatesInPlaceAndHoldsItsStatesAsTheParameter) {
  ParameterRecipe parameter = vector_of(10);
  parameter.storage_bytes = 64;  // padded
  for (const bool clipped : {false, true}) {
    const UpdateRecipe recipe = library_->catalog().update_recipe(AdamSpec{}, parameter, clipped);
    ASSERT_EQ(recipe.state.size(), 2U);
    EXPECT_EQ(recipe.state[0].name, "first_moment");
    EXPECT_EQ(recipe.state[1].name, "second_moment");
    EXPECT_EQ(recipe.state[0].type.bytes(), 64U);
    EXPECT_EQ(recipe.state[1].type.bytes(), 64U);
    std::vector<Operand> reads{kFilter, kDFilter, kState, kState1};
    if (clipped) {
      reads.push_back(kNorm);
    }
    EXPECT_EQ(recipe.op.reads, reads);
    EXPECT_EQ(recipe.op.writes, (std::vector{kFilter, kState, kState1}));
  }
}

TEST_P(AdamTest, RefusesWhatCannotBe) {
  for (const AdamSpec& spec :
       {AdamSpec{.beta1 = -0.1F}, AdamSpec{.beta1 = 1}, AdamSpec{.beta2 = 1}, AdamSpec{.beta2 = NAN},
        AdamSpec{.epsilon = 0}, AdamSpec{.epsilon = INFINITY}, AdamSpec{.weight_decay = -1}}) {
    EXPECT_THROW(library_->catalog().update_recipe(spec, vector_of(1), false), InvalidArgument);
  }
}

}  // namespace
}  // namespace vdnn::testing::adam_test
