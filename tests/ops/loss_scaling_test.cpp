// The ops of dynamic loss scaling follow PyTorch's GradScaler.

#include "src/ops/loss_scaling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/ops/layer_cases.h"
#include "tests/ops/tested_library.h"

namespace vdnn::testing::loss_scaling_test {
namespace {

using reference::Array;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Operand kNorm{OperandRole::kGradientNorm, 0};
constexpr Operand kScale{OperandRole::kLossScale, 0};

Array array_of(const std::vector<double>& numbers) {
  Array array({static_cast<std::int64_t>(numbers.size())});
  array.data = numbers;
  return array;
}

constexpr float kNotClipped = std::numeric_limits<float>::infinity();

class LossScalingOps : public ::testing::TestWithParam<TestedLibrary> {
 protected:
  // Returns norm, scale, skip flag, loss scale and skipped steps for two gradients.
  std::vector<double> norm_of(const std::vector<double>& first, const std::vector<double>& second,
                              float max_norm, const std::vector<double>& scale) {
    std::vector<ParameterRecipe> parameters;
    for (const auto* const gradient : {&first, &second}) {
      const TensorType type{.dims = {static_cast<std::int64_t>(gradient->size())}};
      parameters.push_back({.name = "parameter", .type = type, .storage_bytes = type.bytes()});
    }
    OpHarness op(*library_, GradientNormSpec{.max_norm = max_norm, .loss_scaled = true}, parameters);
    op.set({OperandRole::kParameterGradient, 0}, array_of(first));
    op.set({OperandRole::kParameterGradient, 1}, array_of(second));
    op.set(kScale, array_of(scale));
    op.run(0);
    return op.get(kNorm).data;
  }
  // Returns scale, good steps and skipped steps after one step.
  std::vector<double> updated(const LossScaling& scaling, const std::vector<double>& state, bool skips) {
    OpHarness op(*library_, {.name = "loss_scale_update",
                             .spec = LossScaleUpdateSpec{scaling},
                             .inputs = {{.dims = {3}}, {.dims = {5}}},
                             .output = {.dims = {3}}});
    op.set(kX, array_of(state));
    op.set(kX1, array_of({1, 1, skips ? 1.0 : 0.0, state[0], state[2]}));
    op.run(0);
    std::vector<double> apart = op.get(kY).data;
    op.run(0, {.algorithm = 0, .in_place = op.recipe(0).may_overwrite.at(0)});
    EXPECT_EQ(op.get(kX).data, apart);
    return apart;
  }

  std::unique_ptr<OpLibrary> library_ = GetParam().make();
};

TEST_P(LossScalingOps, TheNormIsOfTheUnscaledGradientsAndTheScaleUndoesTheLossScale) {
  EXPECT_EQ(norm_of({24, 0}, {32}, kNotClipped, {8, 5, 3}), (std::vector<double>{5, 0.125, 0, 8, 3}));
  // The unscaled gradients have the norm 5 and are clipped to a norm of 1.
  const std::vector<double> clipped = norm_of({24, 0}, {32}, 1, {8, 5, 3});
  EXPECT_EQ(clipped[0], 5);
  EXPECT_NEAR(clipped[1], 0.125 / 5, 1e-7);
}

TEST_P(LossScalingOps, AnythingThatIsNotFiniteIsAnOverflow) {
  for (const double bad : {kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()}) {
    for (const float max_norm : {kNotClipped, 1.0F}) {
      const std::vector<double> norm = norm_of({1, bad}, {2}, max_norm, {8, 5, 3});
      EXPECT_EQ(norm[2], 1);
      EXPECT_FALSE(std::isnan(norm[1])) << "no op reads the scale when updates skip";
    }
  }
  // Squares beyond the range of fp32 are not an overflow.
  EXPECT_EQ(norm_of({3e38, 3e38}, {0}, kNotClipped, {8, 0, 0})[2], 0);
}

TEST(LossScaling, TheScaleShrinksWithEachOverflowAndGrowsAfterEnoughGoodSteps) {
  const LossScaling scaling{.growth = 2, .backoff = 0.5F, .growth_interval = 3};
  const auto expect = [](const LossScale& state, float scale, float good, float skipped) {
    EXPECT_EQ(state.scale, scale);
    EXPECT_EQ(state.good_steps, good);
    EXPECT_EQ(state.skipped_steps, skipped);
  };
  LossScale state{.scale = 64};
  state = ops::next(scaling, state, false);
  state = ops::next(scaling, state, false);
  expect(state, 64, 2, 0);
  state = ops::next(scaling, state, true);  // restarts the count
  expect(state, 32, 0, 1);
  for (int i = 0; i < 3; ++i) {
    state = ops::next(scaling, state, false);
  }
  expect(state, 64, 0, 1);
  // The scale never becomes infinite, since every later step would then overflow.
  state = ops::next({.growth_interval = 1}, {.scale = std::numeric_limits<float>::max()}, false);
  expect(state, std::numeric_limits<float>::max(), 0, 0);
}

TEST_P(LossScalingOps, AnUpdateOfTheScaleIsThatArithmeticInPlaceToo) {
  const LossScaling scaling{.growth = 4, .backoff = 0.25F, .growth_interval = 3};
  for (const LossScale& state : {LossScale{64, 0, 0}, LossScale{64, 2, 5}, LossScale{0x1p-126F, 1, 7}}) {
    for (const bool skips : {false, true}) {
      const LossScale want = ops::next(scaling, state, skips);
      EXPECT_EQ(updated(scaling, {state.scale, state.good_steps, state.skipped_steps}, skips),
                (std::vector<double>{want.scale, want.good_steps, want.skipped_steps}));
    }
  }
}

TEST_P(LossScalingOps, AGradientMapIsMultipliedByTheScaleInPlaceToo) {
  for (const Dims& dims : {Dims{1}, Dims{7}, Dims{2, 3, 5, 7}, Dims{4, 33, 13, 11}}) {
    SCOPED_TRACE(to_string(dims));
    OpHarness op(*library_, {.name = "gradient_scaling",
                             .spec = GradientScalingSpec{},
                             .inputs = {{.dims = dims}, {.dims = {3}}},
                             .output = {.dims = dims}});
    Array want = random_array(dims, 81);
    const auto set_operands = [&] {
      op.set(kX, random_array(dims, 81));
      op.set(kX1, array_of({0x1p20, 1, 2}));
    };
    for (double& number : want.data) {
      number *= 0x1p20;  // exact
    }
    set_operands();
    op.run(0);
    expect_equal(op.get(kY), want);
    expect_in_place_equals_apart(op, set_operands);
  }
}

INSTANTIATE_TEST_SUITE_P(Libraries, LossScalingOps, ::testing::ValuesIn(tested_libraries({1, 2})),
                         [](const auto& test) { return test.param.name(); });

// --- updates -----------------------------------------------------------------------------------------------

struct UpdateCase {
  std::string name;
  OptimizerSpec optimizer;
  TestedLibrary library;
};

class ScaledUpdate : public ::testing::TestWithParam<UpdateCase> {
 protected:
  ScaledUpdate() { parameter_.storage_bytes = parameter_.type.bytes(); }

  // Returns the parameter, the states and the copy, in this order.
  std::vector<Array> run(OpHarness::Scaled scaled, const std::vector<double>& norm, double gradient_scale,
                         std::uint64_t step) const {
    OpHarness op(*library_, GetParam().optimizer, parameter_, scaled);
    op.set(kFilter, random_array(parameter_.type.dims, 71));
    Array gradient = random_array(parameter_.type.dims, 72);
    for (double& number : gradient.data) {
      number *= gradient_scale;
    }
    op.set(kDFilter, gradient);
    std::vector<Operand> written = op.recipe(0).writes;
    for (const Operand& each : written) {
      if (each.role == OperandRole::kState) {
        Array state =
            random_array({static_cast<std::int64_t>(parameter_.stored_elements())}, 73 + each.index);
        for (double& number : state.data) {
          number = std::abs(number);  // second moments are not negative
        }
        op.set(each, state);
      }
    }
    op.set({OperandRole::kParameterCopy, 0}, random_array(parameter_.type.dims, 79));
    if (scaled != OpHarness::Scaled::kNot) {
      op.set(kNorm, array_of(norm));
    }
    op.run(0, {.algorithm = 0,
               .in_place = {},
               .scalars = {.learning_rate = 0.5F, .step = step},
               .keeps_writes = true});
    std::vector<Array> result;
    result.reserve(written.size());
    for (const Operand& each : written) {
      result.push_back(op.get(each));
    }
    return result;
  }

  ParameterRecipe parameter_{
      .name = "filter", .type = {.dims = {5, 3, 3, 3}}, .storage_layout = "dense", .copy = DataType::kF16};
  std::unique_ptr<OpLibrary> library_ = GetParam().library.make();
};

void expect_same(const std::vector<Array>& one, const std::vector<Array>& other) {
  ASSERT_EQ(one.size(), other.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    expect_equal(one[i], other[i]);
  }
}

// The loss scale is a power of two, so that scaling loses no bit.
TEST_P(ScaledUpdate, WithScaledGradientsEqualsTheUpdateWithoutScaling) {
  expect_same(run(OpHarness::Scaled::kForTheLoss, {1, 0x1p-9, 0, 0x1p9, 0}, 0x1p9, 4),
              run(OpHarness::Scaled::kNot, {}, 1, 4));
}

TEST_P(ScaledUpdate, IsSkippedToTheBit) {
  const std::vector<Array> skipped =
      run(OpHarness::Scaled::kForTheLoss, {kInfinity, 0, 1, 0x1p9, 0}, kInfinity, 4);
  expect_equal(skipped[0], random_array(parameter_.type.dims, 71));
  expect_equal(skipped.back(), reference::rounded(random_array(parameter_.type.dims, 79), DataType::kF16));
  for (std::size_t state = 1; state + 1 < skipped.size(); ++state) {
    Array before = random_array(skipped[state].dims, 72 + static_cast<std::uint32_t>(state));
    for (double& number : before.data) {
      number = std::abs(number);
    }
    expect_equal(skipped[state], before);
  }
}

// As in PyTorch, the optimizer does not count a skipped step in its bias corrections.
TEST_P(ScaledUpdate, DoesNotCountSkippedSteps) {
  expect_same(run(OpHarness::Scaled::kForTheLoss, {1, 1, 0, 1, 3}, 1, 7),
              run(OpHarness::Scaled::kNot, {}, 1, 4));
}

std::vector<UpdateCase> update_cases() {
  std::vector<UpdateCase> cases;
  for (const TestedLibrary& library : tested_libraries({1, 2})) {
    cases.push_back({"Sgd", SgdSpec{.momentum = 0.9F, .weight_decay = 0.01F}, library});
    cases.push_back({"Adam", AdamSpec{.weight_decay = 0.01F}, library});
    cases.push_back({"AdamW", AdamSpec{.weight_decay = 0.01F, .decoupled = true}, library});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Optimizers, ScaledUpdate, ::testing::ValuesIn(update_cases()),
                         [](const auto& test) { return test.param.name + "_" + test.param.library.name(); });

}  // namespace
}  // namespace vdnn::testing::loss_scaling_test
