#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/ops/gradient_check.h"
#include "tests/ops/layer_cases.h"
#include "tests/ops/tested_library.h"
#include "vdnn/custom_layer.h"
#include "vdnn/error.h"
#include "vdnn/network.h"

namespace vdnn::testing {
namespace {

using reference::Array;
using reference::Sums;

constexpr Operand kCoefficient{OperandRole::kParameter, 0};
constexpr Operand kDCoefficient{OperandRole::kParameterGradient, 0};

template <class T>
T* at(const AddressRange& range) {
  return pointer_to<T>(range.begin);
}

// y = a x^2, with one a per channel. Saves x^2 and needs workspace for the gradient of a.
class Quadratic final : public CustomLayer {
 public:
  std::string kind() const override { return "quadratic"; }
  TensorType output(std::span<const TensorType> inputs) const override { return inputs[0]; }

  LayerRecipe describe(const CustomQuestion& question) const override {
    using enum OperandRole;
    if (question.device == "sim") {
      throw InvalidArgument("quadratic: no code for " + question.device);
    }
    const std::int64_t channels = question.inputs[0].dims[1];
    LayerRecipe recipe{.parameters = {{.name = "coefficient", .type = {.dims = {channels}}}}};
    recipe.forward = {{.reads = {{kInput, 0}, {kParameter, 0}},
                       .writes = {{kOutput, 0}},
                       .algorithms = {{.name = "plain"}}}};
    if (question.mode == Mode::kTraining) {
      recipe.saved = {{.name = "square", .type = question.inputs[0]}};
      recipe.forward[0].writes.push_back({kSaved, 0});
      recipe.backward = {
          {.direction = Direction::kBackwardFilter,
           .reads = {{kSaved, 0}, {kOutputGradient, 0}},
           .writes = {{kParameterGradient, 0}},
           .algorithms = {{.name = "plain", .workspace_bytes = static_cast<std::uint64_t>(channels) * 8},
                          {.name = "backwards",
                           .workspace_bytes = static_cast<std::uint64_t>(channels) * 16}}},
          {.direction = Direction::kBackwardData,
           .reads = {{kInput, 0}, {kParameter, 0}, {kOutputGradient, 0}},
           .writes = {{kInputGradient, 0}},
           .may_overwrite = {{.write = 0, .read = 2}},
           .algorithms = {{.name = "plain"}}}};
    }
    return recipe;
  }

  void run(const CustomLaunch& launch) const override {
    launches.push_back(launch);
    if (launch.direction == Direction::kForward) {
      run_forward(launch);
    } else if (launch.position == 0) {
      run_backward_filter(launch);
    } else {
      run_backward_data(launch);
    }
  }

  mutable std::vector<CustomLaunch> launches;

 private:
  static void run_forward(const CustomLaunch& launch) {
    const auto* const x = at<const float>(launch.operands.reads[0]);
    const auto* const a = at<const float>(launch.operands.reads[1]);
    for (std::size_t i = 0; i < launch.output.elements(); ++i) {
      const float square = x[i] * x[i];
      at<float>(launch.operands.writes[0])[i] = a[i % channels(launch)] * square;
      if (launch.operands.writes.size() > 1) {
        at<float>(launch.operands.writes[1])[i] = square;
      }
    }
  }

  static void run_backward_filter(const CustomLaunch& launch) {
    const auto* const square = at<const float>(launch.operands.reads[0]);
    const auto* const dy = at<const float>(launch.operands.reads[1]);
    const std::span<double> sums{at<double>(launch.operands.workspace), channels(launch)};
    std::ranges::fill(sums, 0);
    const std::uint64_t count = launch.output.elements();
    for (std::uint64_t step = 0; step < count; ++step) {
      const std::uint64_t i = launch.algorithm == 0 ? step : count - 1 - step;
      sums[i % channels(launch)] += static_cast<double>(square[i]) * static_cast<double>(dy[i]);
    }
    std::ranges::copy(sums, at<float>(launch.operands.writes[0]));
  }

  static void run_backward_data(const CustomLaunch& launch) {
    const auto* const x = at<const float>(launch.operands.reads[0]);
    const auto* const a = at<const float>(launch.operands.reads[1]);
    const auto* const dy = at<const float>(launch.operands.reads[2]);
    for (std::size_t i = 0; i < launch.output.elements(); ++i) {
      at<float>(launch.operands.writes[0])[i] = 2 * a[i % channels(launch)] * x[i] * dy[i];
    }
  }

  static std::size_t channels(const CustomLaunch& launch) {
    return static_cast<std::size_t>(launch.inputs[0].dims[1]);
  }
};

// Quadratic with a changed recipe.
class Described final : public CustomLayer {
 public:
  explicit Described(std::function<void(LayerRecipe&)> change) : change_(std::move(change)) {}
  std::string kind() const override { return "described"; }
  TensorType output(std::span<const TensorType> inputs) const override { return inputs[0]; }
  LayerRecipe describe(const CustomQuestion& question) const override {
    LayerRecipe recipe = Quadratic().describe(question);
    change_(recipe);
    return recipe;
  }
  void run(const CustomLaunch&) const override {}

 private:
  std::function<void(LayerRecipe&)> change_;
};

const Dims kShape{2, 3, 5, 7};

LayerCase layer_case(std::shared_ptr<const CustomLayer> layer) {
  return same_shape_case("custom", CustomSpec{std::move(layer)}, kShape);
}

// The arrays are in logical order; each element has two roundings.
Sums quadratic(const Array& x, const Array& a) {
  Sums y(x.dims);
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    y.add(i, a.data[i / 35 % 3] * x.data[i] * x.data[i]);
    y.terms[i] = 2;
  }
  return y;
}
Sums quadratic_backward_data(const Array& x, const Array& a, const Array& dy) {
  Sums dx(x.dims);
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    dx.add(i, 2 * a.data[i / 35 % 3] * x.data[i] * dy.data[i]);
    dx.terms[i] = 2;
  }
  return dx;
}
// The sum is in double, so only the square and the result are rounded.
Sums quadratic_backward_filter(const Array& x, const Array& dy) {
  Sums da(Dims{3});
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    da.add(i / 35 % 3, x.data[i] * x.data[i] * dy.data[i]);
  }
  std::ranges::fill(da.terms, 2);
  return da;
}

class CustomTest : public ::testing::TestWithParam<TestedLibrary> {
 protected:
  OpHarness harness(Mode mode = Mode::kTraining) {
    OpHarness op(*library_, layer_case(layer_), mode);
    op.set(kX, x_);
    op.set(kCoefficient, a_);
    if (mode == Mode::kTraining) {
      op.set(kDY, dy_);
    }
    return op;
  }

  std::unique_ptr<OpLibrary> library_ = GetParam().make();
  std::shared_ptr<const Quadratic> layer_ = std::make_shared<Quadratic>();
  Array x_ = random_array(kShape, 400);
  Array dy_ = random_array(kShape, 401);
  Array a_ = random_array({3}, 402);
};

TEST_P(CustomTest, RunsItsOwnMathematics) {
  OpHarness op = harness();
  op.run(op.writer(kY));
  expect_within_bounds(op.get(kY), quadratic(x_, a_));
  op.run(op.writer(kDX));
  expect_within_bounds(op.get(kDX), quadratic_backward_data(x_, a_, dy_));
  for (const std::uint32_t algorithm : {0U, 1U}) {
    op.run(op.writer(kDCoefficient), {.algorithm = algorithm, .in_place = {}});
    expect_within_bounds(op.get(kDCoefficient), quadratic_backward_filter(x_, dy_));
  }
  OpHarness inference = harness(Mode::kInference);
  inference.run(0);
  expect_within_bounds(inference.get(kY), quadratic(x_, a_));
}

TEST_P(CustomTest, IsToldWhatItRuns) {
  OpHarness op = harness();
  const StepScalars scalars{.learning_rate = 0.5F, .step = 3, .seed = 4, .first_sample = 5};
  op.run(0, {.scalars = scalars});
  op.run(1, {.algorithm = 1, .in_place = {}, .scalars = scalars});
  op.run(2, {.in_place = Overwrite{.write = 0, .read = 2}, .scalars = scalars});
  ASSERT_EQ(layer_->launches.size(), 3U);
  const std::array<Direction, 3> directions{Direction::kForward, Direction::kBackwardFilter,
                                            Direction::kBackwardData};
  for (std::size_t i = 0; i < 3; ++i) {
    const CustomLaunch& launch = layer_->launches[i];
    EXPECT_EQ(launch.direction, directions[i]);
    EXPECT_EQ(launch.position, i == 2 ? 1U : 0U);
    EXPECT_EQ(launch.algorithm, i == 1 ? 1U : 0U);
    EXPECT_EQ(launch.output.dims, kShape);
    EXPECT_EQ(launch.threads, GetParam().threads);
    EXPECT_EQ(launch.native_stream, nullptr);
    EXPECT_EQ(launch.scalars.step, 3U);
    EXPECT_EQ(launch.scalars.seed, 4U);
    EXPECT_EQ(launch.scalars.first_sample, 5U);
    EXPECT_EQ(launch.scalars.learning_rate, 0.5F);
  }
  EXPECT_EQ(layer_->launches[1].operands.workspace.bytes, 48U);
}

TEST_P(CustomTest, ParametersAreStoredDensely) {
  const OpHarness op = harness();
  const ParameterRecipe& parameter = op.tape().parameters()[0].recipe;
  EXPECT_EQ(parameter.storage_bytes, 12U);
  EXPECT_FALSE(parameter.storage_layout.empty());
}

// The host passes a custom layer the numbers that change from step to step, and a replay would not call it
// again.
TEST_P(CustomTest, AreNotReplayed) {
  NetworkBuilder network("network", kShape);
  network.mean_squared_error("loss", network.custom("square", {network.input()}, layer_));
  const auto library = GetParam().make();
  const auto tape = lower_to_tape(std::move(network).build(), library->catalog(), {});
  const auto program = library->compile(*tape, std::vector<std::uint32_t>(tape->ops().size()));
  EXPECT_NE(program->why_not_replay().find("step by value"), std::string::npos);
  std::array<std::byte, kStepNumbersBytes> numbers{};
  if (GetParam().device == "cpu") {
    EXPECT_THROW(program->write_step_numbers({}, numbers), InvalidArgument);
  }
}

INSTANTIATE_TEST_SUITE_P(Libraries, CustomTest, ::testing::ValuesIn(tested_libraries({1, 2})),
                         [](const auto& test) { return test.param.name(); });

// By contract an exception of a running layer becomes a DeviceError that names the op. Regression: the
// exception arrived unchanged.
class Failing final : public CustomLayer {
 public:
  explicit Failing(std::function<void()> fail) : fail_(std::move(fail)) {}
  std::string kind() const override { return "failing"; }
  TensorType output(std::span<const TensorType> inputs) const override { return inputs[0]; }
  LayerRecipe describe(const CustomQuestion& question) const override {
    return Quadratic().describe(question);
  }
  void run(const CustomLaunch&) const override { fail_(); }

 private:
  std::function<void()> fail_;
};

struct Failure {
  const char* name;
  void (*fail)();
  const char* says;
  bool lost = false;
};

class CustomFailures : public ::testing::TestWithParam<Failure> {};

TEST_P(CustomFailures, WhileRunningAreThoseOfTheDeviceAndNameTheOp) {
  for (const TestedLibrary& tested : tested_libraries({1})) {
    SCOPED_TRACE(tested);
    const auto library = tested.make();
    OpHarness op(*library, layer_case(std::make_shared<Failing>(GetParam().fail)));
    try {
      op.run(0);
      FAIL() << "swallowed";
    } catch (const DeviceError& error) {
      const std::string text = error.what();
      for (const std::string& named : {tested.device + ": ", "'" + op.tape().op(0).name + "'",
                                       std::string("'failing'"), std::string(GetParam().says)}) {
        EXPECT_NE(text.find(named), std::string::npos) << text;
      }
      EXPECT_EQ(error.lost(), GetParam().lost);
      const auto* const nested = dynamic_cast<const std::nested_exception*>(&error);
      ASSERT_NE(nested, nullptr);
      EXPECT_NE(nested->nested_ptr(), nullptr) << "the cause is kept";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Thrown, CustomFailures,
    ::testing::Values(Failure{"by_the_library", [] { throw DataError("no more of it"); }, "no more of it"},
                      Failure{"as_an_argument", [] { throw InvalidArgument("not this"); }, "not this"},
                      Failure{"by_the_standard", [] { throw std::out_of_range("too far"); }, "too far"},
                      Failure{"by_a_device", [] { throw DeviceError("gone", true); }, "gone", true},
                      Failure{"as_a_number", [] { throw 5; }, "no std::exception"}),
    [](const auto& test) { return test.param.name; });

struct Rejection {
  const char* name;
  std::function<void(LayerRecipe&)> change;
  const char* says;
  Mode mode = Mode::kTraining;
};

class CustomRejects : public ::testing::TestWithParam<Rejection> {};

TEST_P(CustomRejects, WithAReason) {
  const LayerCase layer = layer_case(std::make_shared<Described>(GetParam().change));
  for (const TestedLibrary& tested : tested_libraries({1})) {
    SCOPED_TRACE(tested);
    const auto library = tested.make();
    try {
      library->catalog().recipe(layer.spec, layer.inputs, std::array{layer.output}, GetParam().mode);
      FAIL() << "accepted";
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find("described"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(GetParam().says), std::string::npos) << error.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Recipes, CustomRejects,
    ::testing::Values(
        Rejection{"no_forward", [](LayerRecipe& recipe) { recipe.forward.clear(); }, "forward"},
        Rejection{"no_algorithm", [](LayerRecipe& recipe) { recipe.forward[0].algorithms.clear(); },
                  "algorithm"},
        Rejection{"no_backward_algorithm", [](LayerRecipe& recipe) { recipe.backward[1].algorithms.clear(); },
                  "algorithm"},
        Rejection{"integer_parameter",
                  [](LayerRecipe& recipe) { recipe.parameters[0].type.data_type = DataType::kI32; }, "fp32"},
        Rejection{"padded_parameter", [](LayerRecipe& recipe) { recipe.parameters[0].storage_bytes = 64; },
                  "64 bytes"},
        Rejection{"backward_in_forward",
                  [](LayerRecipe& recipe) { recipe.forward[0].direction = Direction::kBackwardData; },
                  "direction"},
        Rejection{"forward_in_backward",
                  [](LayerRecipe& recipe) { recipe.backward[0].direction = Direction::kForward; },
                  "direction"},
        Rejection{"saves_in_inference",
                  [](LayerRecipe& recipe) { recipe.saved = {{.name = "square", .type = {.dims = kShape}}}; },
                  "inference", Mode::kInference}),
    [](const auto& test) { return test.param.name; });

TEST_P(CustomTest, RefusesIntegersAndNothing) {
  LayerCase integers = layer_case(std::make_shared<Quadratic>());
  integers.inputs[0].data_type = DataType::kI32;
  EXPECT_THROW(library_->catalog().recipe(integers.spec, integers.inputs, std::array{integers.output},
                                          Mode::kTraining),
               InvalidArgument);
  const LayerCase nothing = layer_case(nullptr);
  EXPECT_THROW(
      library_->catalog().recipe(nothing.spec, nothing.inputs, std::array{nothing.output}, Mode::kTraining),
      InvalidArgument);
}

TEST(ReferenceCustom, GradientsAreDerivatives) {
  const Array x = random_array(kShape, 410);
  const Array dy = random_array(kShape, 411);
  const Array a = random_array({3}, 412);
  expect_gradient(
      x, [&](const Array& moved) { return dot(quadratic(moved, a).value, dy); },
      quadratic_backward_data(x, a, dy).value);
  expect_gradient(
      a, [&](const Array& moved) { return dot(quadratic(x, moved).value, dy); },
      quadratic_backward_filter(x, dy).value);
}

}  // namespace
}  // namespace vdnn::testing
