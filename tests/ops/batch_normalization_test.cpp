#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "src/ops/layer_operands.h"
#include "tests/ops/gradient_check.h"
#include "tests/ops/layer_cases.h"
#include "tests/ops/reference_normalization.h"
#include "tests/ops/tested_library.h"
#include "vdnn/cpu_ops.h"
#include "vdnn/error.h"
#include "vdnn/network.h"

namespace vdnn::testing::batch_normalization_test {
namespace {

using reference::Array;

using ops::normalization::kDScale;
using ops::normalization::kDShift;
using ops::normalization::kMean;
using ops::normalization::kRunningMean;
using ops::normalization::kRunningVariance;
using ops::normalization::kScale;
using ops::normalization::kShift;
using ops::normalization::kVariance;

constexpr BatchNormalizationSpec kSpec{.epsilon = 1e-3F, .momentum = 0.25F};

constexpr auto kEpsilon = static_cast<double>(kSpec.epsilon);

// Rounds to single precision, in which ops read everything.
Array rounded(Array array) {
  for (double& value : array.data) {
    value = static_cast<double>(static_cast<float>(value));
  }
  return array;
}

// All elements are in [1/2, 3/2).
Array positive_array(const Dims& dims, std::uint32_t seed) {
  Array array = random_array(dims, seed);
  for (double& value : array.data) {
    value = 1 + value / 2;
  }
  return rounded(array);
}

// Everything that an op of the layer may read.
struct Values {
  Array x;
  Array dy;
  Array scale;
  Array shift;
  Array running_mean;
  Array running_variance;
  Array mean;
  Array variance;

  explicit Values(const Dims& dims, std::uint32_t seed = 100)
      : x(random_array(dims, seed)),
        dy(random_array(dims, seed + 1)),
        scale(random_array({dims[1]}, seed + 2)),
        shift(random_array({dims[1]}, seed + 3)),
        running_mean(random_array({dims[1]}, seed + 4)),
        running_variance(positive_array({dims[1]}, seed + 5)) {
    const reference::Statistics exact = reference::statistics(x, reference::channel_sets(dims), 0);
    mean = rounded(exact.mean.value);
    variance = rounded(exact.variance.value);
  }

  void set(OpHarness& op) const {
    op.set(kX, x);
    op.set(kScale, scale);
    op.set(kShift, shift);
    op.set(kRunningMean, running_mean);
    op.set(kRunningVariance, running_variance);
    if (op.recipes().size() > 1) {
      op.set(kDY, dy);
      op.set(kMean, mean);
      op.set(kVariance, variance);
    }
  }
};

// oneDNN has separate kernels for three kinds of channel counts: those that fill vector registers of 16
// floats, those that fill registers of 4 floats, and all others.
const std::vector<Dims> kShapes{{4, 3, 5, 7},     {2, 16, 5, 7}, {3, 20, 3, 5}, {2, 5, 3, 4, 5},
                                {2, 32, 3, 4, 5}, {3, 4, 9},     {6, 10},       {5, 16}};

struct Case {
  Dims shape;
  TestedLibrary library;
};

OpHarness harness(OpLibrary& library, const Dims& shape, Mode mode = Mode::kTraining) {
  return {library, same_shape_case("batch_normalization", kSpec, shape), mode};
}

void expect_forward_within_bounds(OpLibrary& library, const Dims& shape) {
  const Values values(shape);
  const reference::Sets sets = reference::channel_sets(shape);
  OpHarness op = harness(library, shape);
  values.set(op);
  op.run(op.writer(kY));
  const reference::Statistics exact = reference::statistics(values.x, sets, sets.elements());
  expect_within_bounds(op.get(kMean), exact.mean);
  expect_within_bounds(op.get(kVariance), exact.variance);
  const auto normalizer = reference::normalizer(exact.mean.value, exact.variance.value, kEpsilon);
  expect_within_bounds(op.get(kY), reference::normalization(values.x, sets, normalizer,
                                                            {values.scale, values.shift}, sets.elements()));
}

void expect_gradients_within_bounds(OpLibrary& library, const Dims& shape) {
  const Values values(shape);
  const reference::Sets sets = reference::channel_sets(shape);
  OpHarness op = harness(library, shape);
  values.set(op);
  op.run(op.writer(kDX));
  const auto want = reference::normalization_backward(
      values.x, sets, reference::normalizer(values.mean, values.variance, kEpsilon), values.dy, values.scale,
      sets.elements());
  expect_within_bounds(op.get(kDX), want.x);
  expect_within_bounds(op.get(kDScale), want.scale);
  expect_within_bounds(op.get(kDShift), want.shift);
}

void expect_inference_within_bounds(OpLibrary& library, const Dims& shape) {
  const Values values(shape);
  const reference::Sets sets = reference::channel_sets(shape);
  OpHarness op = harness(library, shape, Mode::kInference);
  ASSERT_EQ(op.recipes().size(), 1U);
  values.set(op);
  op.run(0);
  const auto normalizer = reference::normalizer(values.running_mean, values.running_variance, kEpsilon);
  expect_within_bounds(op.get(kY),
                       reference::normalization(values.x, sets, normalizer, {values.scale, values.shift}, 0));
}

class BatchNormalizationTest : public ::testing::TestWithParam<Case> {
 protected:
  const Dims& shape_ = GetParam().shape;
  std::unique_ptr<OpLibrary> library_ = GetParam().library.make();
  Values values_{shape_};
};

TEST_P(BatchNormalizationTest, ForwardIsWithinTheErrorBound) {
  expect_forward_within_bounds(*library_, shape_);
}

TEST_P(BatchNormalizationTest, GradientsAreWithinTheErrorBound) {
  expect_gradients_within_bounds(*library_, shape_);
}

TEST_P(BatchNormalizationTest, InferenceTakesTheRunningStatistics) {
  expect_inference_within_bounds(*library_, shape_);
}

TEST_P(BatchNormalizationTest, RunningStatisticsFollowThoseOfTheBatch) {
  OpHarness op = harness(*library_, shape_);
  values_.set(op);
  op.run(op.writer(kRunningMean));
  Array unbiased = values_.variance;
  const auto elements = static_cast<double>(reference::channel_sets(shape_).elements());
  for (double& value : unbiased.data) {
    value *= elements / (elements - 1);
  }
  const auto momentum = static_cast<double>(kSpec.momentum);
  expect_within_bounds(op.get(kRunningMean), reference::follow(values_.running_mean, values_.mean, momentum));
  expect_within_bounds(op.get(kRunningVariance),
                       reference::follow(values_.running_variance, unbiased, momentum));
}

TEST_P(BatchNormalizationTest, InPlaceEqualsOutOfPlace) {
  for (const Mode mode : {Mode::kTraining, Mode::kInference}) {
    OpHarness op = harness(*library_, shape_, mode);
    expect_in_place_equals_apart(op, [&] { values_.set(op); });
  }
}

// Recomputation must reproduce the dropped feature map.
TEST_P(BatchNormalizationTest, SameOperandsSameBits) {
  OpHarness op = harness(*library_, shape_);
  OpHarness again(*library_, same_shape_case("batch_normalization", kSpec, shape_), Mode::kTraining,
                  GuardedBuffer::kAlignment);
  for (OpId id = 0; id < op.recipes().size(); ++id) {
    values_.set(op);
    values_.set(again);
    op.run(id);
    again.run(id);
    for (const Operand& written : op.recipe(id).writes) {
      expect_equal(again.get(written), op.get(written));
    }
  }
}

std::vector<Case> cases() {
  std::vector<Case> result;
  for (const Dims& shape : kShapes) {
    for (const TestedLibrary& library : tested_libraries({1, 2})) {
      result.push_back({shape, library});
    }
  }
  // Large enough for threads to divide the work in more than one dimension.
  result.push_back({{4, 64, 28, 28}, {.device = "cpu", .threads = 2}});
  return result;
}

INSTANTIATE_TEST_SUITE_P(Cases, BatchNormalizationTest, ::testing::ValuesIn(cases()), [](const auto& test) {
  return to_string(test.param.shape) + "_" + test.param.library.name();
});

// oneDNN chooses its kernel by the divisibility of the channel count and handles a remainder separately.
TEST(BatchNormalization, TakesAnyNumberOfChannels) {
  const auto library = make_cpu_ops({});
  for (std::int64_t channels = 1; channels <= 49; ++channels) {
    for (const Dims& shape : {Dims{2, channels, 1, 1}, Dims{3, channels, 3, 3}}) {
      SCOPED_TRACE(to_string(shape));
      expect_forward_within_bounds(*library, shape);
      expect_gradients_within_bounds(*library, shape);
      expect_inference_within_bounds(*library, shape);
    }
  }
}

TEST(BatchNormalization, RecipeNamesOperandsInOrder) {
  const auto library = make_cpu_ops({});
  const OpHarness op(*library, same_shape_case("batch_normalization", kSpec, {2, 3, 4, 4}));
  ASSERT_EQ(op.recipes().size(), 3U);
  EXPECT_EQ(op.recipe(0).reads, (std::vector{kX, kScale, kShift}));
  EXPECT_EQ(op.recipe(0).writes, (std::vector{kY, kMean, kVariance}));
  EXPECT_EQ(op.recipe(1).reads, (std::vector{kMean, kVariance, kRunningMean, kRunningVariance}));
  EXPECT_EQ(op.recipe(1).writes, (std::vector{kRunningMean, kRunningVariance}));
  EXPECT_EQ(op.recipe(2).reads, (std::vector{kX, kMean, kVariance, kDY, kScale}));
  EXPECT_EQ(op.recipe(2).writes, (std::vector{kDX, kDScale, kDShift}));
}

TEST(BatchNormalization, RunningStatisticsAreNotTrained) {
  const auto library = make_cpu_ops({});
  const TensorType type{.dims = {2, 3, 4, 4}};
  for (const Mode mode : {Mode::kTraining, Mode::kInference}) {
    const auto parameters =
        library->catalog().recipe(kSpec, std::array{type}, std::array{type}, mode).parameters;
    ASSERT_EQ(parameters.size(), 4U);
    const std::array<Initializer, 4> initializers{Initializer::kOne, Initializer::kZero, Initializer::kZero,
                                                  Initializer::kOne};
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_EQ(parameters[i].type.dims, Dims{3});
      EXPECT_EQ(parameters[i].storage_bytes, 12U);
      EXPECT_EQ(parameters[i].initializer, initializers[i]);
      EXPECT_EQ(parameters[i].trainable, i < 2);
    }
  }
}

TEST(BatchNormalization, RefusesWhatHasNoVariance) {
  const auto library = make_cpu_ops({});
  const TensorType one{.dims = {1, 3, 1, 1}};
  const TensorType map{.dims = {2, 3, 4, 4}};
  const auto recipe = [&](const BatchNormalizationSpec& spec, const TensorType& type) {
    return library->catalog().recipe(spec, std::array{type}, std::array{type}, Mode::kTraining);
  };
  EXPECT_THROW(recipe(kSpec, one), InvalidArgument);
  EXPECT_THROW(recipe({.epsilon = 0}, map), InvalidArgument);
  EXPECT_THROW(recipe({.momentum = 1.5F}, map), InvalidArgument);
}

// One op makes the gradients of the images and of the parameters; no op reads the images' gradient.
TEST(BatchNormalization, MayBeTheFirstLayer) {
  const auto library = make_cpu_ops({});
  NetworkBuilder builder("net", {4, 3, 5, 5});
  builder.softmax_cross_entropy(
      "loss",
      builder.fully_connected("fc", builder.batch_normalization("norm", builder.input()), {.outputs = 2}));
  const Network network = std::move(builder).build();
  const auto tape = lower_to_tape(network, library->catalog(), {});
  const auto backward = std::ranges::find(tape->ops(), "norm.backward_data", &Op::name);
  ASSERT_NE(backward, tape->ops().end());
  ASSERT_EQ(backward->writes.size(), 3U);
  EXPECT_TRUE(tape->readers(backward->writes[0]).empty());
  library->compile(*tape, std::vector<std::uint32_t>(tape->ops().size(), 0));
  const auto evaluation = lower_to_evaluation_tape(network, library->catalog());
  library->compile(*evaluation, std::vector<std::uint32_t>(evaluation->ops().size(), 0));
}

TEST(ReferenceNormalization, BatchGradientsAreDerivatives) {
  for (const Dims& shape : {Dims{3, 2, 3, 2}, Dims{4, 3}, Dims{2, 2, 2, 1, 3}}) {
    SCOPED_TRACE(to_string(shape));
    const Values values(shape);
    const reference::Sets sets = reference::channel_sets(shape);
    const auto normalizer_of = [&](const Array& x) {
      const reference::Statistics of = reference::statistics(x, sets, 0);
      return reference::normalizer(of.mean.value, of.variance.value, 0.125);
    };
    const auto function = [&](const Array& x, const Array& scale, const Array& shift) {
      return dot(reference::normalization(x, sets, normalizer_of(x), {scale, shift}, 0).value, values.dy);
    };
    const auto gradients = reference::normalization_backward(values.x, sets, normalizer_of(values.x),
                                                             values.dy, values.scale, 0);
    expect_gradient(
        values.x, [&](const Array& moved) { return function(moved, values.scale, values.shift); },
        gradients.x.value);
    expect_gradient(
        values.scale, [&](const Array& moved) { return function(values.x, moved, values.shift); },
        gradients.scale.value);
    expect_gradient(
        values.shift, [&](const Array& moved) { return function(values.x, values.scale, moved); },
        gradients.shift.value);
  }
}

// The expected values are computed by hand, since forward and backward could share a mistake.
TEST(ReferenceNormalization, BatchStatisticsAreThoseOfAChannel) {
  Array x({2, 2, 2});
  x.data = {1, 3, 10, 20, 5, 7, 30, 40};
  const reference::Statistics of = reference::statistics(x, reference::channel_sets(x.dims), 0);
  EXPECT_EQ(of.mean.value.data, (std::vector<double>{4, 25}));
  EXPECT_EQ(of.variance.value.data, (std::vector<double>{5, 125}));
}

}  // namespace
}  // namespace vdnn::testing::batch_normalization_test
